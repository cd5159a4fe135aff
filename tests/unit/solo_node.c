#include "solo_node.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"
#include "base/list.h"
#include "node/node.h"

#define LINK 1

struct block {
    struct fl_list link;
    uint64_t index, term; /* entries */
    size_t len;
    uint8_t bytes[];
};

struct solo {
    struct fl_node *node;
    solo_receive receive;
    void *ctx;
    uint64_t now_ms, term, last_index, asked_round, confirmed_round;
    bool is_leader;
    struct fl_list entries, to_node, to_gateway;
};

static struct block *put(struct fl_list *list, const void *data, size_t len)
{
    struct block *block = fl_xalloc(sizeof *block + len);

    block->len = len;
    if (len > 0)
        memcpy(block->bytes, data, len);
    fl_list_append(list, &block->link);
    return block;
}

/* The first block, out of its list; the caller frees it. NULL: none. */
static struct block *take(struct fl_list *list)
{
    struct fl_list *first = fl_list_first(list);

    if (first == NULL)
        return NULL;
    fl_list_remove(first);
    return FL_CONTAINER_OF(first, struct block, link);
}

static void append(struct solo *solo, const void *data, size_t len)
{
    struct block *entry = put(&solo->entries, data, len);

    entry->index = ++solo->last_index;
    entry->term = solo->term;
}

static uint64_t on_propose(void *ctx, const void *data, size_t len)
{
    struct solo *solo = ctx;

    if (!solo->is_leader)
        return 0;
    append(solo, data, len);
    return solo->last_index;
}

static void on_confirm(void *ctx, uint64_t round)
{
    ((struct solo *)ctx)->asked_round = round;
}

static void on_send(void *ctx, uint64_t link, const void *data, size_t len)
{
    FL_REQUIRE(link == LINK);
    put(&((struct solo *)ctx)->to_gateway, data, len);
}

static int on_transfer(void *ctx, uint64_t node_id)
{
    (void)ctx;
    return node_id > 1 ? FL_E_INVALID : FL_OK;
}

static const struct fl_node_ops ops = {
    .propose = on_propose,
    .confirm = on_confirm,
    .send = on_send,
    .transfer = on_transfer,
};

struct solo *solo_new(uint64_t now_ms, solo_receive receive, void *ctx)
{
    struct solo *solo = fl_xcalloc(1, sizeof *solo);
    struct fl_node_config config = {.node_id = 1, .election_timeout_ms = 60000};

    solo->receive = receive;
    solo->ctx = ctx;
    fl_list_init(&solo->entries);
    fl_list_init(&solo->to_node);
    fl_list_init(&solo->to_gateway);
    solo->node = fl_node_new(&config, &ops, solo);
    solo->now_ms = now_ms;
    fl_node_tick(solo->node, now_ms);
    fl_node_link_up(solo->node, now_ms, LINK);
    return solo;
}

static void drop_all(struct fl_list *list)
{
    for (struct block *block; (block = take(list)) != NULL;)
        free(block);
}

void solo_free(struct solo *solo)
{
    fl_node_free(solo->node);
    drop_all(&solo->entries);
    drop_all(&solo->to_node);
    drop_all(&solo->to_gateway);
    free(solo);
}

void solo_send(struct solo *solo, const void *data, size_t len)
{
    put(&solo->to_node, data, len);
}

void solo_set_leader(struct solo *solo, uint64_t now_ms, bool is_leader)
{
    solo->is_leader = is_leader;
    if (is_leader)
        solo->term++;
    fl_node_role(solo->node, now_ms, solo->term, is_leader, is_leader ? 1 : 0);
    if (is_leader)
        append(solo, NULL, 0); /* the term's barrier */
}

/* Whether something moved. */
static bool step(struct solo *solo)
{
    struct block *block;
    bool has_moved = false;

    while ((block = take(&solo->to_node)) != NULL) {
        FL_REQUIRE(fl_node_request(solo->node, solo->now_ms, LINK, block->bytes + 1,
                                   block->len - 1) == FL_OK);
        free(block);
        has_moved = true;
    }
    fl_node_flush(solo->node, solo->now_ms);
    while ((block = take(&solo->entries)) != NULL) {
        FL_REQUIRE(fl_node_applied(solo->node, solo->now_ms, block->index, block->term,
                                   block->bytes, block->len) == FL_OK);
        free(block);
        has_moved = true;
    }
    if (solo->is_leader && solo->confirmed_round < solo->asked_round) {
        solo->confirmed_round = solo->asked_round;
        fl_node_confirmed(solo->node, solo->now_ms, solo->asked_round, solo->last_index);
        has_moved = true;
    }
    while ((block = take(&solo->to_gateway)) != NULL) {
        solo->receive(solo->ctx, block->bytes, block->len);
        free(block);
        has_moved = true;
    }
    return has_moved;
}

void solo_pump(struct solo *solo, uint64_t now_ms)
{
    solo->now_ms = now_ms;
    fl_node_tick(solo->node, now_ms);
    while (step(solo))
        ;
}
