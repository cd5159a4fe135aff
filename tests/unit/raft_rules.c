/* Every rule of the engine is seen to matter: its story keeps the promise with it, and breaks it
 * without. A rule that has no story fails here. */
#include "raft_rules.h"

struct told {
    enum fl_rule rule;
    const char *title;
    bool (*story)(uint32_t rules_off);
};

#define TOLD(rule, name)                                                                           \
    {                                                                                              \
        FL_RULE_##rule, #rule ": " #name, story_##name                                             \
    }
static const struct told table[] = {
    TOLD(OLD_TERM, old_term),
    TOLD(SPLIT_CHANGE, split_change),
    TOLD(CONFIRM_CHANGE, confirm_change),
    TOLD(STALE_WRITE, stale_write),
    TOLD(OWN_ENTRY, own_entry),
    TOLD(TRIM, trim),
    TOLD(PREVOTE_TERM, prevote_term),
    TOLD(STALE_REJECTION, stale_rejection),
    TOLD(INSTALL_ONCE, install_once),
    TOLD(INSTALL_COMMIT, install_commit),
    TOLD(ONE_TRANSFER, one_transfer),
    TOLD(OWN_SNAPSHOT, own_snapshot),
    TOLD(OWN_SNAPSHOT, snapshot_ahead_of_disk),
    TOLD(LATE_VOTE, late_vote),
    TOLD(UNAWARE_VOTER, unaware_voter),
    TOLD(LAST_CHANGE, last_change),
    TOLD(SINGLE_VOTER, single_voter),
    TOLD(SINGLE_VOTER, single_voter_term),
    TOLD(CONFLICT_HINT, conflict_hint),
    TOLD(CHECK_MESSAGE, check_message),
    TOLD(CATCH_UP, catch_up),
    TOLD(TRANSFER_WAIT, transfer_wait),
    TOLD(OWN_TICK, own_tick),
};
#define TOLD_COUNT (sizeof table / sizeof table[0])

/* The promise is kept with all rules on, and broken with this one off. */
static void rule_matters(void **state)
{
    const struct told *told = *state;

    assert_true(told->story(0));
    assert_false(told->story(1u << told->rule));
}

static void every_rule_has_a_story(void **state)
{
    static const char *const names[] = {
#define X(name, number, sentence) #name,
        FL_RULE_TABLE(X)
#undef X
    };
    uint32_t seen = 0;

    (void)state;
    for (unsigned i = 0; i < TOLD_COUNT; i++)
        seen |= 1u << table[i].rule;
    for (unsigned i = 0; i < FL_RULE_COUNT; i++)
        if ((seen & (1u << i)) == 0)
            fail_msg("no story is told of %s", names[i]);
}

int main(void)
{
    struct CMUnitTest tests[TOLD_COUNT + 1] = {cmocka_unit_test(every_rule_has_a_story)};

    for (unsigned i = 0; i < TOLD_COUNT; i++)
        tests[i + 1] = (struct CMUnitTest){.name = table[i].title,
                                           .test_func = rule_matters,
                                           .initial_state = (void *)(uintptr_t)&table[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
