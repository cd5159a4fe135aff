/* Stories of the rules of raft/rules.h. Each tells whether what its rule promises was kept; the
 * table in raft_rules.c has it told with the rule and without. */
#ifndef FL_TESTS_UNIT_RAFT_RULES_H
#define FL_TESTS_UNIT_RAFT_RULES_H

#include <stdbool.h>
#include <stdint.h>

#include "test.h"

#include "engine_rig.h"

/* --- raft_rules_log.c: appends, writes and refusals --- */
bool story_old_term(uint32_t rules_off);
bool story_stale_write(uint32_t rules_off);
bool story_trim(uint32_t rules_off);
bool story_stale_rejection(uint32_t rules_off);
bool story_conflict_hint(uint32_t rules_off);
bool story_check_message(uint32_t rules_off);

/* --- raft_rules_change.c: the configuration --- */
bool story_split_change(uint32_t rules_off);
bool story_confirm_change(uint32_t rules_off);
bool story_own_entry(uint32_t rules_off);
bool story_last_change(uint32_t rules_off);
bool story_single_voter(uint32_t rules_off);
bool story_single_voter_term(uint32_t rules_off);
bool story_catch_up(uint32_t rules_off);

/* --- raft_rules_election.c: who leads, and when --- */
bool story_prevote_term(uint32_t rules_off);
bool story_late_vote(uint32_t rules_off);
bool story_unaware_voter(uint32_t rules_off);
bool story_transfer_wait(uint32_t rules_off);
bool story_own_tick(uint32_t rules_off);

/* --- raft_rules_snapshot.c --- */
bool story_install_once(uint32_t rules_off);
bool story_install_commit(uint32_t rules_off);
bool story_one_transfer(uint32_t rules_off);
bool story_own_snapshot(uint32_t rules_off);
bool story_snapshot_ahead_of_disk(uint32_t rules_off);

#endif
