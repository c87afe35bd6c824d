import { Effect } from "effect"
import { SqlClient } from "effect/sql"

// As in step 0004, but that a time to run at below zero is a delay, counted from when the job is stored. Processes of before
// send none.
const store = `
  -- outcome: 0 created, 1 replayed, 2 the key was used for another request, 3 another job stands in the way.
  CREATE OR REPLACE FUNCTION deadman.store_job(
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
    due_ms := CASE WHEN new_run_at_ms < 0 THEN now_ms - new_run_at_ms ELSE greatest(now_ms, new_run_at_ms) END;
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

// As in step 0004, but for `delay_ms`. One of 0 is none, and a request without a delay has the fingerprint it had.
const submit = `
  CREATE OR REPLACE FUNCTION deadman.submit(type text, payload jsonb, options jsonb DEFAULT '{}') RETURNS text
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET extra_float_digits = '1' AS $$
  #variable_conflict use_column
  DECLARE
    known     text[] := ARRAY['queue', 'priority', 'max_attempts', 'run_at_ms', 'delay_ms', 'backoff', 'timeout_ms',
                              'tags', 'idempotency_key', 'start_by_ms', 'retain_ms', 'unique'];
    field     text;
    given     jsonb := coalesce(submit.options, '{}');
    body      jsonb := coalesce(submit.payload, 'null');
    name_rule text := 'must be 1 to 128 characters of A-Z a-z 0-9 . _ : -, beginning with a letter or digit';
    name_form text := '^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$';
    run_at    bigint;
    delay     bigint;
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
        (CASE WHEN given -> 'delay_ms' IN ('0', 'null') THEN given - 'delay_ms' ELSE given END - 'idempotency_key')
        || jsonb_build_object('type', submit.type)
        || CASE WHEN submit.payload IS NULL THEN '{}' ELSE jsonb_build_object('payload', body) END
      ), 'UTF8')), 'base64'), '+/', '-_'), '=');
    END IF;
    run_at := deadman.whole_option(given, 'run_at_ms', 0, 253402300799999, true, 'run_at_ms');
    start_by := deadman.whole_option(given, 'start_by_ms', 0, 253402300799999, true, 'start_by_ms');
    delay := deadman.whole_option(given, 'delay_ms', 0, 3155760000000, true, 'delay_ms');
    IF delay IS NOT NULL AND run_at IS NOT NULL THEN
      PERFORM deadman.refuse('delay_ms', 'must not be given with run_at_ms: one of the two says when the job is due');
    END IF;
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
      coalesce(run_at, -delay),
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

export default Effect.gen(function*() {
  const sql = yield* SqlClient.SqlClient
  yield* sql.unsafe(store)
  yield* sql.unsafe(submit)
})
