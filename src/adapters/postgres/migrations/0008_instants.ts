import { Effect } from "effect"
import { SqlClient } from "effect/sql"

// As in step 0004, but for `isSeconds` of domain/Job.ts.
const whole = `
  CREATE OR REPLACE FUNCTION deadman.whole_option(options jsonb, field text, least_value bigint, most_value bigint,
                                                  nullable boolean, label text) RETURNS bigint
  LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
  DECLARE
    given jsonb := options -> field;
    whole bigint;
  BEGIN
    IF given IS NULL OR (nullable AND given = 'null') THEN
      RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'number' OR given::numeric <> trunc(given::numeric)
       OR given::numeric NOT BETWEEN least_value AND most_value THEN
      PERFORM deadman.refuse(label, format('must be a whole number from %s to %s', least_value, most_value));
    END IF;
    whole := given::numeric::bigint;
    IF field IN ('run_at_ms', 'start_by_ms') AND whole >= 1000000000 AND whole < 100000000000 THEN
      PERFORM deadman.refuse(label, format(
        'must be milliseconds since the epoch: %s looks like seconds, so give %s', whole, whole * 1000));
    END IF;
    RETURN whole;
  END $$`

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(whole)
})
