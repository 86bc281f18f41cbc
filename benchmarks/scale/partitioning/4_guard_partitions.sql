-- `migrate` has put the guards on the whole table; triggers for each row hold for its partitions, these do not.

DO $$ DECLARE partition regclass; BEGIN
    FOR partition IN
        SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'conversations_event'::regclass
    LOOP
        EXECUTE format('CREATE TRIGGER event_refuse_update BEFORE UPDATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION event_refuse_update()', partition);
        EXECUTE format('CREATE TRIGGER event_refuse_truncate BEFORE TRUNCATE ON %s '
            'FOR EACH STATEMENT EXECUTE FUNCTION event_refuse_truncate()', partition);
    END LOOP;
END $$;
