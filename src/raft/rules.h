/* The rules that keep clear of libraft's corners. docs/consensus.md tells what goes wrong without
 * each. Tests switch single ones off (fl_engine_config.rules_off, a mask of 1 << rule), which only
 * a build with -DFL_BUGS can do. */
#ifndef FL_RAFT_RULES_H
#define FL_RAFT_RULES_H

/* name, number in docs/consensus.md, sentence. */
#define FL_RULE_TABLE(X)                                                                           \
    X(OLD_TERM, "1", "a request of an older term is answered by us, and marked as old")            \
    X(SPLIT_CHANGE, "2", "each change of the configuration is appended as an event of its own")    \
    X(CONFIRM_CHANGE, "2b", "an older change is confirmed before a newer one is appended")         \
    X(STALE_WRITE, "3", "a completed write counts only for entries that are still in the log")     \
    X(OWN_ENTRY, "4", "a leader changes nothing before an entry of its own term is committed")     \
    X(TRIM, "5", "an append that begins below our log is anchored at our snapshot")                \
    X(PREVOTE_TERM, "6", "a pre-candidate that is behind is told our term")                        \
    X(STALE_REJECTION, "7", "a refusal of what was acknowledged is dropped")                       \
    X(INSTALL_ONCE, "8", "a snapshot that arrives during an installation is dropped")              \
    X(INSTALL_COMMIT, "8b", "the commit index waits for the installation")                         \
    X(ONE_TRANSFER, "9", "one transfer of a snapshot to a peer at a time")                         \
    X(OWN_SNAPSHOT, "10", "an own snapshot that an installation overtook is dropped")              \
    X(LATE_VOTE, "11", "a vote's result is heard only by a candidate")                             \
    X(UNAWARE_VOTER, "12", "a server votes that does not know that it is a voter")                 \
    X(LAST_CHANGE, "12b", "the next change waits until every voter has the last one")              \
    X(SINGLE_VOTER, "13", "no change leaves too few voters, and a single one raises its term")     \
    X(CONFLICT_HINT, "14", "a refusal skips the whole term that conflicts")                        \
    X(CHECK_MESSAGE, "15", "a message that contradicts itself or our leadership is dropped")       \
    X(CATCH_UP, "16", "catching up begins only where it can end")                                  \
    X(TRANSFER_WAIT, "17", "leadership is handed to a server that has everything")                 \
    X(OWN_TICK, "18", "a leader ticks by its own clock")

enum fl_rule {
#define X(name, number, sentence) FL_RULE_##name,
    FL_RULE_TABLE(X)
#undef X
        FL_RULE_COUNT,
};

#endif
