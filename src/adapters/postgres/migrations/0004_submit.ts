// The functions of step 0004: how a job is stored from SQL, with the checks of `adapters/http/SubmitBody.ts`.

const ids = `
  -- Version 7: the time in front, and 74 random bits.
  CREATE FUNCTION deadman.new_id() RETURNS uuid LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(set_bit(set_bit(
      overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(deadman.now_ms()) FROM 3) FROM 1 FOR 6),
      52, 1), 53, 1), 'hex')::uuid
  $$`

const replaced = `
  -- Cancels a job that waits. Whether it did.
  CREATE FUNCTION deadman.cancel_waiting(waiting uuid) RETURNS boolean LANGUAGE plpgsql AS $$
  DECLARE
    ended int;
  BEGIN
    WITH o AS MATERIALIZED (
      SELECT id, state, route, epoch, worker FROM deadman.job WHERE id = waiting AND state IN (0, 2)
      FOR NO KEY UPDATE
    ),
    u AS (
      UPDATE deadman.job j
      SET state = 4, reason = 2, mark = 3, finished_at_ms = deadman.now_ms(), rank = NULL, wait_ms = NULL,
          expire_ms = NULL
      FROM o WHERE j.id = o.id AND j.state IN (0, 2)
      RETURNING j.id
    ),
    t AS (
      INSERT INTO deadman.tally (route, state, n)
      SELECT o.route, m.state, m.n
      FROM o JOIN u USING (id) CROSS JOIN LATERAL (VALUES (o.state, -1), (4::smallint, 1)) m(state, n)
    ),
    e AS (
      SELECT o.id, jsonb_build_object('kind', 'cancel_requested', 'epoch', o.epoch, 'worker', o.worker,
                                      'at_ms', deadman.now_ms()) AS event
      FROM o JOIN u USING (id)
    ),
    g AS (
      INSERT INTO deadman.journal AS g (id, events, events_total)
      SELECT e.id, jsonb_build_array(e.event), 1 FROM e
      ON CONFLICT (id) DO UPDATE
      SET events = deadman.history(g.events, EXCLUDED.events -> 0), events_total = g.events_total + 1
    )
    SELECT count(*) INTO ended FROM u;
    RETURN ended > 0;
  END $$`

const stored = `
  CREATE TYPE deadman.stored AS (
    outcome int, id uuid, created_at_ms bigint, run_at_ms bigint, route int, due_in_ms bigint
  )`

const again = `
  -- What was answered for a job that is there. It moves no tally and wakes nobody: no route, no time.
  CREATE FUNCTION deadman.stored_job(job_id uuid) RETURNS deadman.stored LANGUAGE plpgsql AS $$
  DECLARE
    answer deadman.stored;
  BEGIN
    SELECT 0, b.id, b.created_at_ms, j.run_at_ms, NULL, NULL INTO answer
    FROM deadman.body b JOIN deadman.job j ON j.id = b.id WHERE b.id = job_id;
    RETURN answer;
  END $$`

// Its locks last until the caller's transaction ends: a key, what is unique, and a route that is new. The tally of the
// new job and the wake are the caller's, since those are one for many jobs.
const store = `
  -- outcome: 0 created, 1 replayed, 2 the key was used for another request, 3 another job stands in the way.
  CREATE FUNCTION deadman.store_job(
    new_id uuid, new_type text, new_queue text, new_payload jsonb, new_bytes int, new_priority int,
    new_max_attempts int, new_backoff jsonb, new_timeout_ms int, new_run_at_ms bigint, new_tags text[],
    new_resubmitted_from uuid, new_key text, new_fingerprint text, key_ttl_ms bigint, new_start_by_ms bigint,
    new_retain_ms bigint, new_unique jsonb
  ) RETURNS deadman.stored LANGUAGE plpgsql SET extra_float_digits = '1' AS $$
  DECLARE
    answer    deadman.stored;
    now_ms    bigint := deadman.now_ms();
    found_job uuid;
    found_fp  text;
    over      boolean;
    only_key  text;
    window_ms bigint := (new_unique ->> 'window_ms')::bigint;
    in_way    boolean;
    step      bigint;
    due_ms    bigint;
  BEGIN
    -- Sent again after an answer that was lost.
    answer := deadman.stored_job(new_id);
    IF answer.id IS NOT NULL THEN
      RETURN answer;
    END IF;

    IF new_key IS NOT NULL THEN
      FOR round IN 1..5 LOOP
        INSERT INTO deadman.key (key, job, fingerprint) VALUES (new_key, new_id, new_fingerprint)
        ON CONFLICT (key) DO NOTHING;
        EXIT WHEN FOUND;
        IF round = 5 THEN
          RAISE EXCEPTION 'the idempotency_key comes and goes: try again' USING ERRCODE = '55P03';
        END IF;
        SELECT k.job, k.fingerprint, j.id IS NULL OR coalesce(j.finished_at_ms < now_ms - key_ttl_ms, false)
        INTO found_job, found_fp, over
        FROM deadman.key k LEFT JOIN deadman.job j ON j.id = k.job WHERE k.key = new_key;
        CONTINUE WHEN NOT FOUND;
        IF over THEN
          DELETE FROM deadman.key k WHERE k.key = new_key AND k.job = found_job;
        ELSIF found_job = new_id THEN
          RETURN deadman.stored_job(new_id);
        ELSE
          answer.outcome := CASE WHEN found_fp = new_fingerprint THEN 1 ELSE 2 END;
          answer.id := found_job;
          RETURN answer;
        END IF;
      END LOOP;
    END IF;

    IF new_unique IS NOT NULL THEN
      only_key := deadman.unique_key(new_type, new_payload, new_unique -> 'fields');
      FOR round IN 1..5 LOOP
        INSERT INTO deadman.uniqueness (key, job, until_ms) VALUES (only_key, new_id, now_ms + window_ms)
        ON CONFLICT (key) DO NOTHING;
        EXIT WHEN FOUND;
        IF round = 5 THEN
          RAISE EXCEPTION 'the job in its way comes and goes: try again' USING ERRCODE = '55P03';
        END IF;
        SELECT u.job INTO found_job FROM deadman.uniqueness u WHERE u.key = only_key FOR UPDATE;
        CONTINUE WHEN NOT FOUND;
        IF found_job = new_id THEN
          RETURN deadman.stored_job(new_id);
        END IF;
        SELECT coalesce(
          (new_unique -> 'states') ? (ARRAY['pending', 'running', 'failed', 'completed', 'dead'])[j.state + 1]
            AND (window_ms IS NULL OR b.created_at_ms > now_ms - window_ms), false)
        INTO in_way
        FROM deadman.job j JOIN deadman.body b ON b.id = j.id WHERE j.id = found_job;
        IF coalesce(in_way, false) AND
           NOT (new_unique ->> 'on_conflict' = 'replace' AND deadman.cancel_waiting(found_job)) THEN
          -- Claimed or ended between the two statements: what is so now decides.
          CONTINUE WHEN round = 1 AND new_unique ->> 'on_conflict' = 'replace';
          UPDATE deadman.key k SET job = found_job WHERE k.key = new_key AND k.job = new_id;
          answer.outcome := 3;
          answer.id := found_job;
          RETURN answer;
        END IF;
        UPDATE deadman.uniqueness u SET job = new_id, until_ms = now_ms + window_ms WHERE u.key = only_key;
        EXIT;
      END LOOP;
    END IF;

    SELECT r.id, r.step_ms INTO answer.route, step FROM deadman.route r WHERE r.type = new_type AND r.queue = new_queue;
    IF NOT FOUND THEN
      INSERT INTO deadman.route (type, queue) VALUES (new_type, new_queue) ON CONFLICT (type, queue) DO NOTHING;
      SELECT r.id, r.step_ms INTO answer.route, step
      FROM deadman.route r WHERE r.type = new_type AND r.queue = new_queue;
      IF NOT FOUND THEN
        RAISE EXCEPTION 'somebody else was the first to use this type and queue: try again' USING ERRCODE = '40001';
      END IF;
    END IF;

    -- Locks may have been waited for.
    now_ms := deadman.now_ms();
    due_ms := greatest(now_ms, new_run_at_ms);
    INSERT INTO deadman.body (id, payload, created_at_ms, timeout_ms, max_attempts, backoff, tags, key,
                              resubmitted_from, start_by_ms, uniqueness)
    VALUES (new_id, new_payload, now_ms, new_timeout_ms, new_max_attempts, new_backoff, new_tags, new_key,
            new_resubmitted_from, new_start_by_ms, new_unique)
    ON CONFLICT (id) DO NOTHING;
    IF NOT FOUND THEN
      RETURN deadman.stored_job(new_id);
    END IF;
    INSERT INTO deadman.job (id, run_at_ms, rank, wait_ms, route, bytes, priority, expire_ms, retain_ms, prune_ms)
    VALUES (new_id, due_ms, CASE WHEN due_ms <= now_ms THEN due_ms - new_priority * step END,
            CASE WHEN due_ms > now_ms THEN due_ms END, answer.route, new_bytes, new_priority, new_start_by_ms,
            new_retain_ms, now_ms + new_retain_ms);
    answer.outcome := 0;
    answer.id := new_id;
    answer.created_at_ms := now_ms;
    answer.run_at_ms := due_ms;
    answer.due_in_ms := due_ms - now_ms;
    RETURN answer;
  END $$`

// HTTP says of a wrong field what it must be; so does this. 22023 is Postgres's own code for a bad argument.
const options = `
  CREATE FUNCTION deadman.refuse(field text, rule text) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  BEGIN
    RAISE EXCEPTION '% %', field, rule USING ERRCODE = '22023';
  END $$`

const whole = `
  CREATE FUNCTION deadman.whole_option(options jsonb, field text, least_value bigint, most_value bigint,
                                       nullable boolean, label text) RETURNS bigint
  LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    given jsonb := options -> field;
  BEGIN
    IF given IS NULL OR (nullable AND given = 'null') THEN
      RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'number' OR given::numeric <> trunc(given::numeric)
       OR given::numeric NOT BETWEEN least_value AND most_value THEN
      PERFORM deadman.refuse(label, format('must be a whole number from %s to %s', least_value, most_value));
    END IF;
    RETURN given::numeric::bigint;
  END $$`

const backoff = `
  -- What is stored: the default is not.
  CREATE FUNCTION deadman.backoff_option(given jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    rule  text := 'must be {"kind":"fixed","delay_ms"} or {"kind":"exponential","base_ms","cap_ms"}, each a whole number from 0 to 86400000';
    kind  text;
    names text;
    field text;
  BEGIN
    IF given IS NULL THEN
      RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'object' THEN
      PERFORM deadman.refuse('backoff', rule);
    END IF;
    kind := given ->> 'kind';
    SELECT string_agg(key, ',' ORDER BY key COLLATE "C") INTO names FROM jsonb_object_keys(given) key;
    IF NOT coalesce((kind = 'fixed' AND names = 'delay_ms,kind') OR
                    (kind = 'exponential' AND names = 'base_ms,cap_ms,kind'), false) THEN
      PERFORM deadman.refuse('backoff', rule);
    END IF;
    FOR field IN SELECT key FROM jsonb_object_keys(given) key WHERE key <> 'kind' LOOP
      IF jsonb_typeof(given -> field) <> 'number' OR (given -> field)::numeric <> trunc((given -> field)::numeric)
         OR (given -> field)::numeric NOT BETWEEN 0 AND 86400000 THEN
        PERFORM deadman.refuse('backoff', rule);
      END IF;
    END LOOP;
    RETURN nullif(given, '{"kind":"exponential","base_ms":1000,"cap_ms":900000}');
  END $$`

const unique = `
  -- Defaults filled in: domain/Unique.ts.
  CREATE FUNCTION deadman.unique_option(given jsonb, payload jsonb) RETURNS jsonb
  LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    known     text[] := ARRAY['fields', 'window_ms', 'states', 'on_conflict'];
    field     text;
    fields    jsonb;
    states    jsonb;
    window_ms bigint;
  BEGIN
    IF given IS NULL OR given = 'null' THEN
      RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'object' THEN
      PERFORM deadman.refuse('unique', 'must be an object, with any of ' || array_to_string(known, ', '));
    END IF;
    FOR field IN SELECT key FROM jsonb_object_keys(given) key LOOP
      IF field <> ALL (known) THEN
        PERFORM deadman.refuse('unique.' || left(field, 100),
                               'is not a field of unique; these are: ' || array_to_string(known, ', ') || '.');
      END IF;
    END LOOP;
    fields := nullif(given -> 'fields', 'null');
    IF fields IS NOT NULL THEN
      IF jsonb_typeof(fields) <> 'array' OR jsonb_array_length(fields) NOT BETWEEN 1 AND 16
         OR EXISTS (SELECT 1 FROM jsonb_array_elements(fields) f
                    WHERE jsonb_typeof(f) <> 'string' OR length(f #>> '{}') NOT BETWEEN 1 AND 128)
         OR (SELECT count(*) <> count(DISTINCT f) FROM jsonb_array_elements(fields) f) THEN
        PERFORM deadman.refuse('unique.fields', 'must be an array of 1 to 16 different names of 1 to 128 characters');
      END IF;
      IF jsonb_typeof(payload) <> 'object' THEN
        PERFORM deadman.refuse('unique.fields', 'needs a payload that is an object');
      END IF;
    END IF;
    window_ms := deadman.whole_option(given, 'window_ms', 1, 31622400000, true, 'unique.window_ms');
    states := given -> 'states';
    IF states IS NULL THEN
      states := CASE WHEN window_ms IS NULL THEN '["pending","running","failed"]'
                     ELSE '["pending","running","failed","completed"]' END;
    ELSIF jsonb_typeof(states) <> 'array' OR jsonb_array_length(states) = 0
       OR EXISTS (SELECT 1 FROM jsonb_array_elements(states) s
                  WHERE s NOT IN ('"pending"', '"running"', '"failed"', '"completed"', '"dead"'))
       OR (SELECT count(*) <> count(DISTINCT s) FROM jsonb_array_elements(states) s) THEN
      PERFORM deadman.refuse('unique.states',
                             'must be an array of different states of pending, running, failed, completed, dead');
    END IF;
    IF given ? 'on_conflict' AND given -> 'on_conflict' NOT IN ('"skip"', '"replace"') THEN
      PERFORM deadman.refuse('unique.on_conflict', 'must be skip or replace');
    END IF;
    RETURN jsonb_build_object('fields', fields, 'window_ms', window_ms, 'states', states,
                              'on_conflict', coalesce(given ->> 'on_conflict', 'skip'));
  END $$`

const payloads = `
  CREATE FUNCTION deadman.check_payload(payload jsonb) RETURNS void LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  BEGIN
    -- A scalar behind 255 levels passes, an array or object does not: over HTTP the body is the first level of 256.
    IF jsonb_path_exists(payload, 'strict $.**{255 to last} ? (@.type() == "object" || @.type() == "array")') THEN
      PERFORM deadman.refuse('payload', 'is nested deeper than 255 levels');
    END IF;
    -- As arrays: jsonb_path_query itself takes time with the square of what it finds.
    IF EXISTS (SELECT 1 FROM jsonb_array_elements(
                 jsonb_path_query_array(payload, 'strict $.** ? (@.type() == "number")')) n
               WHERE abs(n::numeric) NOT BETWEEN 2.2250738585072014e-308 AND 9007199254740991
                 AND NOT deadman.number_kept(n::numeric)) THEN
      PERFORM deadman.refuse('payload', 'holds a number that would be changed by storing it: send it as a string');
    END IF;
    -- As Postgres writes it, it has a space behind each comma and colon, which no limit speaks of.
    IF octet_length(payload::text) > 1048576 AND octet_length(payload::text) - (
      SELECT coalesce(sum(CASE jsonb_typeof(c) WHEN 'array' THEN greatest(jsonb_array_length(c) - 1, 0)
        ELSE greatest(2 * (SELECT count(*) FROM jsonb_object_keys(c)) - 1, 0) END), 0)
      FROM jsonb_array_elements(
        jsonb_path_query_array(payload, 'strict $.** ? (@.type() == "object" || @.type() == "array")')) c
    ) > 1048576 THEN
      PERFORM deadman.refuse('payload', 'has more than 1048576 bytes');
    END IF;
  END $$`

// The owner's rights are used, so that a role needs no right to any table: it may submit, and nothing else.
const submit = `
  CREATE FUNCTION deadman.submit(type text, payload jsonb, options jsonb DEFAULT '{}') RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
  #variable_conflict use_column
  DECLARE
    known     text[] := ARRAY['queue', 'priority', 'max_attempts', 'run_at_ms', 'backoff', 'timeout_ms', 'tags',
                              'idempotency_key', 'start_by_ms', 'retain_ms', 'unique'];
    field     text;
    given     jsonb := coalesce(submit.options, '{}');
    body      jsonb := coalesce(submit.payload, 'null');
    name_rule text := 'must be 1 to 128 characters of A-Z a-z 0-9 . _ : -, beginning with a letter or digit';
    name_form text := '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
    run_at    bigint;
    start_by  bigint;
    print     text;
    answer    deadman.stored;
    patient   boolean := current_setting('lock_timeout') = '0';
  BEGIN
    IF jsonb_typeof(given) <> 'object' THEN
      PERFORM deadman.refuse('options', 'must be an object');
    END IF;
    IF submit.type IS NULL OR submit.type COLLATE "C" !~ name_form THEN
      PERFORM deadman.refuse('type', name_rule);
    END IF;
    FOR field IN SELECT k.name FROM jsonb_object_keys(given) k(name) LOOP
      IF field IN ('key', 'debounce') THEN
        PERFORM deadman.refuse(field, 'is reserved for later.');
      ELSIF field <> ALL (known) THEN
        PERFORM deadman.refuse(left(field, 100),
                               'is not an option of a job; these are: ' || array_to_string(known, ', ') || '.');
      END IF;
    END LOOP;
    IF given ? 'queue' AND (jsonb_typeof(given -> 'queue') <> 'string'
                            OR (given ->> 'queue') COLLATE "C" !~ name_form) THEN
      PERFORM deadman.refuse('queue', name_rule);
    END IF;
    IF given ? 'tags' AND (jsonb_typeof(given -> 'tags') <> 'array' OR jsonb_array_length(given -> 'tags') > 32
        OR EXISTS (SELECT 1 FROM jsonb_array_elements(given -> 'tags') t(tag)
                   WHERE jsonb_typeof(t.tag) <> 'string'
                      OR (t.tag #>> '{}') COLLATE "C" !~ '^[!-~]([ -~]{0,62}[!-~])?$')) THEN
      PERFORM deadman.refuse('tags', 'must be an array of at most 32 tags of 1 to 64 printable ASCII characters, '
                                     || 'without a space at either end');
    END IF;
    IF given ? 'idempotency_key' THEN
      IF jsonb_typeof(given -> 'idempotency_key') <> 'string'
         OR (given ->> 'idempotency_key') COLLATE "C" !~ '^[!-~]{1,255}$' THEN
        PERFORM deadman.refuse('idempotency_key', 'must be 1 to 255 printable ASCII characters without spaces');
      END IF;
      print := rtrim(translate(encode(sha256(convert_to(deadman.canonical(
        (given - 'idempotency_key') || jsonb_build_object('type', submit.type)
        || CASE WHEN submit.payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', body) END
      ), 'UTF8')), 'base64'), '+/', '-_'), '=');
    END IF;
    run_at := deadman.whole_option(given, 'run_at_ms', 0, 253402300799999, true, 'run_at_ms');
    start_by := deadman.whole_option(given, 'start_by_ms', 0, 253402300799999, true, 'start_by_ms');
    IF run_at > start_by THEN
      PERFORM deadman.refuse('start_by_ms', 'must not be before run_at_ms');
    END IF;
    PERFORM deadman.check_payload(body);

    -- Nobody waits without end for a key that another transaction holds.
    IF patient THEN
      PERFORM set_config('lock_timeout', '3000', true);
    END IF;
    answer := deadman.store_job(
      deadman.new_id(), submit.type, coalesce(given ->> 'queue', 'default'), body, octet_length(body::text),
      coalesce(deadman.whole_option(given, 'priority', -1000, 1000, false, 'priority'), 0)::int,
      coalesce(deadman.whole_option(given, 'max_attempts', 1, 1000, false, 'max_attempts'), 10)::int,
      deadman.backoff_option(given -> 'backoff'),
      deadman.whole_option(given, 'timeout_ms', 1, 604800000, true, 'timeout_ms')::int,
      run_at,
      nullif(ARRAY(SELECT t.tag FROM jsonb_array_elements_text(given -> 'tags') t(tag)), '{}'),
      NULL, given ->> 'idempotency_key', print,
      -- How long keys live is known to the processes: they delete those that are over.
      NULL,
      start_by,
      deadman.whole_option(given, 'retain_ms', 0, 3155760000000, true, 'retain_ms'),
      deadman.unique_option(given -> 'unique', body)
    );
    IF patient THEN
      PERFORM set_config('lock_timeout', '0', true);
    END IF;
    IF answer.outcome = 2 THEN
      RAISE EXCEPTION 'idempotency_key was used for a different request: use a new key for a new job'
        USING ERRCODE = 'DM003', DETAIL = format('The job that has it is %s.', answer.id);
    END IF;
    IF answer.outcome = 0 THEN
      INSERT INTO deadman.tally (route, state, n) VALUES (answer.route, 0, 1);
      -- With the commit. What came this way is published nowhere, so it wakes in every profile.
      IF answer.due_in_ms <= 0 THEN
        PERFORM pg_notify('deadman_wake', 'r');
      ELSIF answer.due_in_ms <= 2000 THEN
        PERFORM pg_notify('deadman_wake', 'd');
      END IF;
    END IF;
    RETURN answer.id::text;
  END $$`

export default [
  ids,
  replaced,
  stored,
  again,
  store,
  options,
  whole,
  backoff,
  unique,
  payloads,
  submit,
  `REVOKE ALL ON FUNCTION deadman.submit(text, jsonb, jsonb) FROM PUBLIC`
] as const
