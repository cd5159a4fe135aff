/* Seeded bugs: one-line switches that break a rule on purpose, so that the tests and checkers can
 * be seen failing. They exist only in builds with -DFL_BUGS (the "_bugs" libraries that tests link,
 * whose test program defines fl_bug_on); in every other build FL_BUG() is the constant false.
 *
 *     deadline = FL_BUG(GRACE_HALVED) ? now + ttl / 2 : now + ttl;
 *
 * Each must be found by at least one test: a bug that survives means a missing test. */
#ifndef FL_BASE_BUGS_H
#define FL_BASE_BUGS_H

/* name, what it breaks. Kept in the order of the layers: core, node, gateway, client, store. */
#define FL_BUG_TABLE(X)                                                                            \
    X(CORE_RELEASE_IGNORES_TOKEN, "a late release frees the next holder (L5, C03)")                \
    X(CORE_TRY_ONCE_BARGES, "wait_ms 0 overtakes the queue (L7)")                                  \
    X(CORE_SHARED_PASSES_EXCLUSIVE, "a reader overtakes a queued writer (L7, C54)")                \
    X(CORE_LIMIT_OFF_BY_ONE, "one permit too many (L3)")                                           \
    X(CORE_FORGETS_FINISHED, "a late retry of a refused request is granted (L10, L11)")            \
    X(CORE_CANCEL_LOSES_WAKE_UP, "a cancelled first waiter wakes nobody (L6, V3)")                 \
    X(CORE_TOKEN_FALLS_WHEN_IDLE, "tokens begin anew when nothing is held (L1)")                   \
    X(CORE_TOKEN_SHARED_BY_READERS, "two readers get one token (L2)")                              \
    X(CORE_GRANTS_DEAD_WAITER, "a waiter whose session ended is granted (L8, C01)")                \
    X(CORE_GRANTS_LATE_WAITER, "a waiter is granted behind its deadline (L8, C04)")                \
    X(CORE_RELEASE_WAKES_LATER, "the next waiter is not granted in the same entry (L6)")           \
    X(CORE_RETRY_QUEUES_AGAIN, "a repeated request stands in the queue twice (L10, C02)")          \
    X(CORE_REQUEST_ID_IS_ENOUGH, "a request id with other arguments gets the old outcome (L10)")   \
    X(CORE_ANY_ASKER_ABANDONS, "giving up one call ends what another call asked for (C02)")        \
    X(CORE_EARLY_CANCEL_FORGOTTEN, "a cancelled request that comes late is granted (L11, C05)")    \
    X(CORE_LOCK_DELAY_AFTER_CLOSE, "a name stays closed after a session was closed in order")      \
    X(CORE_DEAD_HOLDER_SHOWN, "a queue shows those whose session ended (L9)")                      \
    X(CORE_TIME_GOES_BACK, "a new leader takes log time back (L14)")                               \
    X(CORE_LOAD_FORGETS_ARRIVAL, "what is due happens in another order after a reload (R9)")       \
    X(CORE_OTHER_KIND_WAITS, "who wants another kind of lock waits in silence (C32)")              \
    X(CORE_SESSION_REENTERS, "a session is granted a name twice (L3, C43, C53)")                   \
    X(CORE_HAND_ON_STOPS, "a hand-on that was cut short is not gone on with (L6, V3)")             \
    X(CORE_HAND_ON_UNBOUNDED, "a long queue is handed on in one entry (C06)")                      \
    X(CORE_EXPIRY_OF_ANY_TERM, "an expiry decided by a deposed leader is obeyed (T4, C07)")        \
    X(NODE_ACK_WITHOUT_CONFIRM, "a heartbeat is acknowledged unconfirmed (N1)")                    \
    X(NODE_CONFIRM_BEGUN_BEFORE_RECEIPT, "a round that runs already counts (N1)")                  \
    X(NODE_NO_GRACE, "a new leader expires at once (N2)")                                          \
    X(NODE_GRACE_HALVED, "a new leader gives half a TTL (N2)")                                     \
    X(NODE_NOTE_IGNORED, "a new leader gives a full TTL to the silent (N2, C08)")                  \
    X(NODE_ACK_BEFORE_NOTE_CLEARED, "acknowledged while the log says silent (N2)")                 \
    X(NODE_TABLE_KEPT, "deadlines survive lost leadership (N2)")                                   \
    X(NODE_ACK_AFTER_EXPIRE_PROPOSED, "acknowledged between expiry and outcome (N4)")              \
    X(NODE_STALL_NOT_ADDED, "the leader's own silence counts against others (N5)")                 \
    X(NODE_EXPIRY_UNCONFIRMED, "an expiry is proposed unconfirmed (N5)")                           \
    X(NODE_READ_WITHOUT_CONFIRM, "a read is answered unconfirmed (N6, C21)")                       \
    X(NODE_READ_BEFORE_APPLIED, "a read is answered from a state behind (N6)")                     \
    X(NODE_REPLY_MATCHED_BY_INDEX, "another leader's entry answers our requests (N7)")             \
    X(NODE_HEARTBEAT_BEHIND_BATCH, "heartbeats wait for the entry in flight (N8)")                 \
    X(NODE_REFUSES_WHAT_WAITS, "a repeated request is refused for load, and waits on (L11)")       \
    X(NODE_LOG_TIME_OF_OWN_CLOCK, "log time is the leader's clock (L14)")                          \
    X(NODE_WORKS_WITHOUT_CAUSE, "an entry is written though nothing is due (C74)")                 \
    X(GATEWAY_RESENDS_WHOLE_WAIT, "a wait begins anew with each leader (C04)")                     \
    X(GATEWAY_RESENDS_AS_NEW, "what is sent again is a new request (C02, L10)")                    \
    X(GATEWAY_FORGETS_ON_LOSS, "what a lost node had not answered fails (V10)")                    \
    X(GATEWAY_ACKS_BY_ITSELF, "a heartbeat is acknowledged without a node (T11)")                  \
    X(GATEWAY_KEEPS_ABANDONED, "a call that is gone leaves its place in the queue (C05, L11)")     \
    X(GATEWAY_KEEPS_SILENT_LINK, "a link that is half open is never given up (G5, C22)")           \
    X(GATEWAY_STAYS_WITHOUT_LEADER, "streams stay where no leader is reached (C24)")               \
    X(GATEWAY_SESSION_ENDS_WITH_STREAM, "a session dies with its gateway's stream (C27)")          \
    X(GATEWAY_ZERO_MEANS_ABSENT, "a ttl of zero is taken for the default (C29)")                   \
    X(GATEWAY_NAME_ENDS_AT_ZERO_BYTE, "a name is cut at a zero byte (C30)")                        \
    X(CLIENT_BELIEF_FROM_RECEIPT, "belief counts from the answer, not from the send (T6)")         \
    X(CLIENT_ANY_ACK_COUNTS, "an acknowledgement of another heartbeat counts (T6)")                \
    X(CLIENT_GRANT_RENEWS_BELIEF, "a grant, new or repeated, extends the lease (T7)")              \
    X(CLIENT_GRANT_AFTER_BELIEF, "a grant that comes after the lease counts (T10, C01)")           \
    X(CLIENT_REOPENS_SILENTLY, "locks outlive their session (C10)")                                \
    X(CLIENT_STOPS_ON_FIRST_ERROR, "one failed heartbeat ends the renewals (C09)")                 \
    X(CLIENT_LOSS_IS_SILENT, "a lost lock is told to nobody (C11)")                                \
    X(CLIENT_RELEASE_FORGOTTEN, "a release that failed is not tried again (C13)")                  \
    X(CLIENT_RECONNECTS_AT_ONCE, "all clients of a gateway come back at once (C26)")               \
    X(CLIENT_WALL_CLOCK, "the lease is counted on the wall clock (T8, C50)")                       \
    X(STORE_ACK_BEFORE_SYNC, "an append is told durable before it is (R4)")                        \
    X(STORE_VOTE_NOT_SYNCED, "a vote is forgotten by a power cut (R3)")                            \
    X(STORE_SEGMENT_NAME_NOT_SYNCED, "a segment's name is lost by a power cut (R4)")               \
    X(STORE_SNAPSHOT_NOT_SYNCED, "a snapshot's content is lost by a power cut (C56)")              \
    X(STORE_SNAPSHOT_NAME_NOT_SYNCED, "the log is cut before the snapshot is durable (C56)")       \
    X(STORE_LOG_CUT_TO_NEWEST_SNAPSHOT, "a damaged snapshot leaves a hole behind it (C57)")        \
    X(STORE_TRUNCATION_NOT_REPLAYED, "entries that were truncated come back (C60)")                \
    X(STORE_TRUNCATION_NOT_WRITTEN, "a truncation is not in the log (C60)")                        \
    X(STORE_RESET_KEEPS_OLD_LOG, "an installed snapshot is followed by the old log (C56)")         \
    X(STORE_RECOVERY_NOT_SYNCED, "what a start found is lost by a later power cut (R5)")           \
    X(STORE_DAMAGE_TAKEN_FOR_TORN, "acknowledged entries are cut silently (C57)")                  \
    X(STORE_TORN_TAIL_NOT_WIPED, "the rest of a torn write comes back behind a new one (C57)")     \
    X(STORE_CHECKSUM_WITHOUT_POSITION, "a record in the wrong place passes (C57)")

#ifdef FL_BUGS
enum fl_bug {
    FL_BUG_NONE,
#define X(name, what) FL_BUG_##name,
    FL_BUG_TABLE(X)
#undef X
        FL_BUG_COUNT,
};
extern enum fl_bug fl_bug_on; /* defined by the test program */
#define FL_BUG(name) (fl_bug_on == FL_BUG_##name)
#else
#define FL_BUG(name) (0)
#endif

#endif
