/* One node with everything around it in the test's hands: the log, the confirmations, the clock and
 * the gateways' links. Nothing happens that the story does not do. */
#ifndef FL_TESTS_UNIT_NODE_RIG_H
#define FL_TESTS_UNIT_NODE_RIG_H

#include "base/buf.h"
#include "node/node.h"

#define RIG_ENTRIES_MAX 256
#define RIG_FRAMES_MAX  4096

struct rig_entry {
    uint64_t term;
    uint8_t *data; /* owned; NULL: an entry without commands */
    size_t len;
};

struct rig_frame {
    uint64_t link;
    uint8_t *data; /* owned; `reply` and `push` borrow from it */
    enum fl_link_frame type;
    struct fl_reply reply;
    struct fl_push push;
};

struct rig {
    struct fl_node *node;
    uint64_t now_ms, term;
    struct rig_entry log[RIG_ENTRIES_MAX]; /* [0] is not used */
    uint64_t last, applied;
    uint64_t round; /* the last that was begun */
    bool refuses;   /* propose() gives 0 */
    uint64_t transfer_to;
    enum fl_request_type change; /* of members, as last asked for */
    uint64_t change_id;
    char change_address[64];
    int change_result;
    struct rig_frame frames[RIG_FRAMES_MAX];
    size_t n_frames;
    uint64_t next_tag;
};

struct rig *rig_new(uint32_t pending_max); /* links 1 and 2 are up; 0: the default */
void rig_free(struct rig *rig);

/* Time passes in ticks of at most 50 ms; flushes. */
void rig_pass(struct rig *rig, uint64_t ms);
/* The node stands still meanwhile. */
void rig_stall(struct rig *rig, uint64_t ms);
void rig_flush(struct rig *rig);
/* The same, with everything confirmed and committed at each tick. */
void rig_live(struct rig *rig, uint64_t ms);

/* Becomes leader of the next term, with its first entry applied. */
void rig_lead(struct rig *rig);
void rig_elect(struct rig *rig);  /* the same, but nothing of the term is applied yet */
void rig_follow(struct rig *rig); /* another node leads the next term */

/* Applies what is in the log and not applied. */
void rig_commit(struct rig *rig);
/* Drops what is in the log and not applied. */
void rig_lose_tail(struct rig *rig);
/* An entry of another leader. */
void rig_append(struct rig *rig, uint64_t now_ms, const struct fl_command *commands, size_t n);
void rig_append_empty(struct rig *rig); /* without commands */
/* The last round that was begun is confirmed. */
void rig_confirm(struct rig *rig);
/* Flush, commit, confirm until nothing moves. */
void rig_settle(struct rig *rig);

/* Sends a request on a link and returns its tag. */
uint64_t rig_ask(struct rig *rig, uint64_t link, struct fl_request request);
uint64_t rig_open(struct rig *rig, uint64_t session, uint32_t ttl_ms); /* settled */
uint64_t rig_beat(struct rig *rig, uint64_t session);
uint64_t rig_acquire(struct rig *rig, uint64_t session, uint64_t request_id, const char *name,
                     uint32_t wait_ms);
struct fl_session_id rig_session(uint64_t number);

/* The answer to a tag, or NULL. Fails the process when there are two. */
const struct fl_reply *rig_reply(const struct rig *rig, uint64_t tag);
bool rig_has_reply(const struct rig *rig, uint64_t tag, enum fl_answer answer);
bool rig_has_status(const struct rig *rig, uint64_t tag, enum fl_reply_status status);
/* The n-th push of a type, or NULL. */
const struct rig_frame *rig_push(const struct rig *rig, enum fl_push_type type, size_t n);
/* How many commands of a type the log holds after index `after`. */
size_t rig_count(const struct rig *rig, enum fl_command_type type, uint64_t after);
bool rig_is_alive(const struct rig *rig, uint64_t session);

#endif
