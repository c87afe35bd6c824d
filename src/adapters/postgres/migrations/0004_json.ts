// The functions of step 0004 that know JSON: one spelling of it, and what of it a reader would change.
//
// What a text means here must be what it means to the server: a request that came by HTTP and one that came by SQL have
// one fingerprint, and are unique together. So `canonical` writes JSON as `domain/JsonText.ts` does.

const digits = `
  -- The shortest decimal that reads back as the same double, as JavaScript writes it.
  CREATE FUNCTION deadman.js_number(value numeric) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    double   float8;
    text     text;
    parts    text[];
    digits   text;
    point    int;
    sign     text;
    shorter  numeric;
  BEGIN
    IF value = trunc(value) AND abs(value) < 1e15 THEN
      RETURN trunc(value)::bigint::text;
    END IF;
    double := value::float8;
    text := double::text;
    LOOP
      parts := regexp_match(text, '^(-?)([0-9]+)(?:[.]([0-9]+))?(?:e([-+][0-9]+))?$');
      sign := parts[1];
      digits := ltrim(parts[2] || coalesce(parts[3], ''), '0');
      -- Where the point stands, counted from the first digit that is not zero.
      point := length(parts[2]) + coalesce(parts[4]::int, 0)
               - (length(parts[2] || coalesce(parts[3], '')) - length(digits));
      digits := rtrim(digits, '0');
      -- Postgres leaves out the decimal that is just half way to the next double; JavaScript takes it where it is shorter.
      EXIT WHEN length(digits) < 16 OR point > 308;
      shorter := round(text::numeric, length(digits) - 1 - point);
      EXIT WHEN shorter::float8 <> double;
      text := shorter::text;
    END LOOP;
    RETURN sign || CASE
      WHEN digits = '' THEN '0'
      WHEN point > 21 OR point <= -6 THEN
        left(digits, 1) || CASE WHEN length(digits) > 1 THEN '.' || substr(digits, 2) ELSE '' END
          || 'e' || CASE WHEN point > 0 THEN '+' ELSE '-' END || abs(point - 1)
      WHEN point <= 0 THEN '0.' || repeat('0', -point) || digits
      WHEN point >= length(digits) THEN digits || repeat('0', point - length(digits))
      ELSE left(digits, point) || '.' || substr(digits, point + 1)
    END;
  END $$`

const kept = `
  -- Whether a number is the same after a reader that has doubles: digits of a fraction may go, a whole number may not
  -- become another one.
  CREATE FUNCTION deadman.number_kept(value numeric) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    bits bigint;
  BEGIN
    IF value = 0 OR abs(value) BETWEEN 2.2250738585072014e-308 AND 9007199254740991 THEN
      RETURN true;
    END IF;
    IF abs(value) > 1.7976931348623157e308 OR abs(value) < 5e-324 THEN
      RETURN false;
    END IF;
    IF deadman.js_number(value)::numeric = value THEN
      RETURN true;
    END IF;
    IF abs(value) < 9007199254740991 THEN
      RETURN abs(value) >= 1;
    END IF;
    bits := ('x' || encode(float8send(abs(value)::float8), 'hex'))::bit(64)::bigint;
    RETURN abs(value) = ((bits & 4503599627370495) | 4503599627370496)::numeric * 2::numeric ^ ((bits >> 52) - 1075);
  END $$`

const canonical = `
  -- What holds others calls itself for those that hold others again: a call costs more than what most values need.
  CREATE FUNCTION deadman.canonical(value jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  BEGIN
    RETURN CASE jsonb_typeof(value)
      WHEN 'object' THEN '{' || coalesce((
        SELECT string_agg(to_json(e.key)::text || ':' || CASE
          WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN deadman.canonical(e.value)
          WHEN jsonb_typeof(e.value) <> 'number' OR e.value::text ~ '^-?[0-9]{1,15}$' THEN e.value::text
          ELSE deadman.js_number(e.value::numeric) END, ',' ORDER BY e.key COLLATE "C")
        FROM jsonb_each(value) e), '') || '}'
      WHEN 'array' THEN '[' || coalesce((
        SELECT string_agg(CASE
          WHEN jsonb_typeof(e.value) IN ('object', 'array') THEN deadman.canonical(e.value)
          WHEN jsonb_typeof(e.value) <> 'number' OR e.value::text ~ '^-?[0-9]{1,15}$' THEN e.value::text
          ELSE deadman.js_number(e.value::numeric) END, ',' ORDER BY e.at)
        FROM jsonb_array_elements(value) WITH ORDINALITY AS e(value, at)), '') || ']'
      WHEN 'number' THEN deadman.js_number(value::numeric)
      ELSE value::text
    END;
  END $$`

const names = `
  -- What must be unique: the type, which fields count, and what they are.
  CREATE FUNCTION deadman.unique_key(job_type text, payload jsonb, fields jsonb) RETURNS text
  LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    chosen jsonb;
    names  jsonb;
  BEGIN
    IF coalesce(fields, 'null') = 'null' THEN
      chosen := jsonb_build_array(payload);
    ELSE
      SELECT jsonb_agg(f.name ORDER BY f.name COLLATE "C"),
             coalesce(jsonb_object_agg(f.name, payload -> f.name) FILTER (WHERE payload ? f.name), '{}')
      INTO names, chosen
      FROM jsonb_array_elements_text(fields) f(name);
      chosen := jsonb_build_array(chosen, names);
    END IF;
    RETURN job_type || ':' || encode(sha256(convert_to(deadman.canonical(chosen), 'UTF8')), 'hex');
  END $$`

export default [digits, kept, canonical, names] as const
