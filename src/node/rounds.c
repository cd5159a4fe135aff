/* Confirmations of leadership. N1, N6: what arrives is answered after a round that began after it
 * arrived, so no later leader can have been elected before; and once everything is applied that was
 * committed then. One round runs at a time and covers all who came before it. N8: heartbeats are
 * answered before reads. */
#include "base/alloc.h"
#include "base/bugs.h"
#include "node/internal.h"

/* A round that is not confirmed by then is followed by another, so that a lost one cannot hold up
 * those who wait. */
static uint64_t retry_ms(const struct fl_node *node)
{
    return node->config.election_timeout_ms / 4 + 1;
}

/* No round that began before this counts any more. */
void fl_node__rounds_void(struct fl_node *node)
{
    node->rounds.confirmed = node->rounds.begun;
}

void fl_node__rounds_init(struct fl_node *node)
{
    fl_list_init(&node->rounds.beats);
    fl_list_init(&node->rounds.reads);
    fl_list_init(&node->rounds.ready_beats);
    fl_list_init(&node->rounds.ready_reads);
}

uint64_t fl_node__rounds_next(const struct fl_node *node)
{
    const struct rounds *rounds = &node->rounds;

    if (FL_BUG(NODE_CONFIRM_BEGUN_BEFORE_RECEIPT) && rounds->begun > rounds->confirmed)
        return rounds->begun;
    return rounds->begun + 1;
}

void fl_node__rounds_ask(struct fl_node *node, struct pending *p)
{
    struct rounds *rounds = &node->rounds;
    bool is_beat = p->type == FL_REQ_KEEP_ALIVE;

    p->round = fl_node__rounds_next(node);
    if (is_beat ? FL_BUG(NODE_ACK_WITHOUT_CONFIRM) : FL_BUG(NODE_READ_WITHOUT_CONFIRM)) {
        p->read_index = node->applied_index;
        fl_list_append(is_beat ? &rounds->ready_beats : &rounds->ready_reads, &p->in_place);
        fl_node__rounds_serve(node);
        return;
    }
    fl_list_append(is_beat ? &rounds->beats : &rounds->reads, &p->in_place);
}

/* The last to come waits for the latest round. */
static uint64_t round_wanted(const struct fl_list *queue)
{
    if (fl_list_is_empty(queue))
        return 0;
    return FL_CONTAINER_OF(queue->prev, struct pending, in_place)->round;
}

void fl_node__rounds_flush(struct fl_node *node)
{
    struct rounds *rounds = &node->rounds;
    uint64_t wanted = round_wanted(&rounds->beats);
    uint64_t others[] = {round_wanted(&rounds->reads), fl_node__liveness_round(node)};

    for (size_t i = 0; i < FL_ARRAY_LEN(others); i++)
        wanted = others[i] > wanted ? others[i] : wanted;
    if (wanted <= rounds->confirmed)
        return;
    if (rounds->begun > rounds->confirmed && node->now_ms - rounds->begun_at_ms < retry_ms(node))
        return;
    rounds->begun++;
    rounds->begun_at_ms = node->now_ms;
    node->ops.confirm(node->ctx, rounds->begun);
}

/* The front of `from` that asked before `round` began. */
static void move_confirmed(struct fl_list *from, struct fl_list *to, uint64_t round,
                           uint64_t read_index)
{
    FL_LIST_EACH(at, from)
    {
        struct pending *p = FL_CONTAINER_OF(at, struct pending, in_place);

        if (p->round > round)
            break;
        p->read_index = read_index;
        fl_list_remove(at);
        fl_list_append(to, at);
    }
}

void fl_node__rounds_confirmed(struct fl_node *node, uint64_t round, uint64_t read_index)
{
    struct rounds *rounds = &node->rounds;

    if (round <= rounds->confirmed || round > rounds->begun)
        return;
    rounds->confirmed = round;
    move_confirmed(&rounds->beats, &rounds->ready_beats, round, read_index);
    move_confirmed(&rounds->reads, &rounds->ready_reads, round, read_index);
    fl_node__liveness_confirmed(node, round);
}

static bool is_readable(const struct fl_node *node, const struct pending *p)
{
    return p->read_index <= node->applied_index || FL_BUG(NODE_READ_BEFORE_APPLIED);
}

static void serve_read(struct fl_node *node, struct pending *p)
{
    struct fl_request request;

    /* It was decoded when it came. */
    if (fl_request_decode(p->message, p->message_len, &request) == 0)
        fl_node__read_answer(node, p->link, &request);
    fl_node__pending_free(node, p);
}

void fl_node__rounds_serve(struct fl_node *node)
{
    if (!node->is_settled)
        return;
    if (FL_BUG(NODE_HEARTBEAT_BEHIND_BATCH) && node->in_flight != NULL)
        return;
    for (struct fl_list *at; (at = fl_list_first(&node->rounds.ready_beats)) != NULL;) {
        struct pending *p = FL_CONTAINER_OF(at, struct pending, in_place);

        if (!is_readable(node, p))
            break;
        fl_list_remove(at);
        fl_node__live_beat(node, p);
    }
    for (struct fl_list *at; (at = fl_list_first(&node->rounds.ready_reads)) != NULL;) {
        struct pending *p = FL_CONTAINER_OF(at, struct pending, in_place);

        if (!is_readable(node, p))
            break;
        serve_read(node, p);
    }
}
