-- The log in 32 hash partitions by conversation. What differs from the migrations:
-- - the key is (id, conversation_id): PostgreSQL wants the partition key in every unique constraint;
-- - ids come from a sequence as a default: before PostgreSQL 17, a partitioned table has no identity column;
-- - UPDATE and TRUNCATE are refused by triggers on each partition, too: statement triggers are not inherited.

CREATE SEQUENCE conversations_event_ids AS bigint;

CREATE TABLE conversations_event_new (
    LIKE conversations_event INCLUDING DEFAULTS INCLUDING STORAGE INCLUDING COMPRESSION
) PARTITION BY HASH (conversation_id);

ALTER TABLE conversations_event_new ALTER COLUMN id SET DEFAULT nextval('conversations_event_ids');
ALTER SEQUENCE conversations_event_ids OWNED BY conversations_event_new.id;

DO $$ BEGIN
    FOR n IN 0..31 LOOP
        EXECUTE format(
            'CREATE TABLE conversations_event_p%s PARTITION OF conversations_event_new '
            'FOR VALUES WITH (MODULUS 32, REMAINDER %s)', lpad(n::text, 2, '0'), n);
    END LOOP;
END $$;

ALTER TABLE conversations_event_new
    ADD CONSTRAINT conversations_event_new_pkey PRIMARY KEY (id, conversation_id),
    ADD CONSTRAINT event_new_seq_once UNIQUE (conversation_id, seq),
    ADD CONSTRAINT event_new_id_once UNIQUE (conversation_id, event_id),
    ADD CONSTRAINT event_new_conversation FOREIGN KEY (conversation_id)
        REFERENCES conversations_conversation (id) DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX event_new_wire_id ON conversations_event_new (conversation_id, wire_id) WHERE wire_id IS NOT NULL;
CREATE INDEX event_new_turn ON conversations_event_new (conversation_id, turn_id) WHERE turn_id IS NOT NULL;
CREATE INDEX event_new_time ON conversations_event_new (conversation_id, timestamp, seq);
