-- While no server runs, in one transaction. Then: convserver manage migrate, step 4, and the servers.

BEGIN;
LOCK TABLE conversations_event IN ACCESS EXCLUSIVE MODE;

-- What came since step 2. A transaction may have committed lower ids late; a margin of ids covers them.
INSERT INTO conversations_event_new
    SELECT * FROM conversations_event
    WHERE id > (SELECT COALESCE(MAX(id), 0) - 100000 FROM conversations_event_new)
    ON CONFLICT DO NOTHING;
-- What was purged since step 2. The new table has no triggers yet.
DELETE FROM conversations_event_new AS copied USING conversations_purge AS purge
    WHERE copied.conversation_id = purge.conversation_id
    AND NOT EXISTS (SELECT 1 FROM conversations_event AS e WHERE e.id = copied.id);

DO $$ BEGIN
    IF (SELECT COUNT(*) FROM conversations_event) <> (SELECT COUNT(*) FROM conversations_event_new) THEN
        RAISE EXCEPTION 'The copy is not complete: nothing was switched.';
    END IF;
END $$;
SELECT setval('conversations_event_ids', (SELECT COALESCE(MAX(id), 0) + 1 FROM conversations_event_new));

ALTER TABLE conversations_event RENAME TO conversations_event_old;
ALTER TABLE conversations_event_old RENAME CONSTRAINT conversations_event_pkey TO conversations_event_old_pkey;
ALTER TABLE conversations_event_old RENAME CONSTRAINT event_seq_once TO event_old_seq_once;
ALTER TABLE conversations_event_old RENAME CONSTRAINT event_id_once TO event_old_id_once;
ALTER INDEX event_wire_id RENAME TO event_old_wire_id;
ALTER INDEX event_turn RENAME TO event_old_turn;
ALTER INDEX event_time RENAME TO event_old_time;

ALTER TABLE conversations_event_new RENAME TO conversations_event;
ALTER TABLE conversations_event RENAME CONSTRAINT conversations_event_new_pkey TO conversations_event_pkey;
ALTER TABLE conversations_event RENAME CONSTRAINT event_new_seq_once TO event_seq_once;
ALTER TABLE conversations_event RENAME CONSTRAINT event_new_id_once TO event_id_once;
ALTER INDEX event_new_wire_id RENAME TO event_wire_id;
ALTER INDEX event_new_turn RENAME TO event_turn;
ALTER INDEX event_new_time RENAME TO event_time;
COMMIT;
