-- While servers run. Events never change, so a copy stays right; what is stored or purged meanwhile is step 3's.
-- Many sessions may share the work, each with a range of ids.

INSERT INTO conversations_event_new SELECT * FROM conversations_event;
ANALYZE conversations_event_new;
