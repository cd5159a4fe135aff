#include "node/watch.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "node/internal.h"

#define CHUNK_SIZE (128u * 1024)

/* Changes lie one after the other in chunks; a chunk is forgotten whole. */
struct watch_chunk {
    struct watch_chunk *next;
    size_t used, n_changes;
    uint64_t last_index;
    uint8_t bytes[CHUNK_SIZE];
};

struct change {
    uint64_t index;
    struct fl_session_id session;
    fl_token token;
    uint8_t mode, cause, granted;
    uint16_t name_len;
    char name[];
};

_Static_assert(FL_NAME_MAX <= UINT16_MAX, "the length of a name fits a change");

struct watch {
    struct fl_list in_link, in_place; /* in_place: `prefixes`, or the ring of twins of one name */
    struct link *link;
    uint64_t tag, hash;
    bool is_prefix;
    struct fl_str name; /* owned, behind the struct */
};

static uint64_t hash_name(const struct fl_node *node, struct fl_str name)
{
    struct fl_hash_key key = {node->config.hash_key[0], node->config.hash_key[1]};

    return fl_hash_siphash(key, name.data, name.len);
}

static bool watches_name(const void *value, const void *key)
{
    return fl_str_equal(((const struct watch *)value)->name, *(const struct fl_str *)key);
}

void fl_node__watches_init(struct fl_node *node)
{
    fl_list_init(&node->watches.prefixes);
}

static void forget_changes(struct watches *watches)
{
    while (watches->first != NULL) {
        struct watch_chunk *chunk = watches->first;

        watches->first = chunk->next;
        free(chunk);
    }
    watches->last = watches->entry_chunk = NULL;
    watches->n_changes = watches->n_bytes = watches->entry_at = 0;
}

/* The watches went with their links. */
void fl_node__watches_deinit(struct fl_node *node)
{
    forget_changes(&node->watches);
    fl_map_deinit(&node->watches.names);
}

/* --- The ring --- */

static size_t size_of_change(size_t name_len)
{
    size_t size = sizeof(struct change) + name_len;

    return (size + _Alignof(struct change) - 1) & ~(_Alignof(struct change) - 1);
}

static struct watch_chunk *chunk_for(struct watches *watches, size_t size)
{
    struct watch_chunk *chunk = watches->last;

    if (chunk != NULL && CHUNK_SIZE - chunk->used >= size)
        return chunk;
    chunk = fl_xalloc(sizeof *chunk);
    chunk->next = NULL;
    chunk->used = chunk->n_changes = 0;
    if (watches->last != NULL)
        watches->last->next = chunk;
    else
        watches->first = chunk;
    watches->last = chunk;
    return chunk;
}

void fl_node__watch_record(struct fl_node *node, const struct fl_effect *effect)
{
    struct watches *watches = &node->watches;
    size_t size = size_of_change(effect->name.len);
    struct watch_chunk *chunk = chunk_for(watches, size);
    struct change *change = (struct change *)(void *)(chunk->bytes + chunk->used);

    if (watches->entry_chunk == NULL) {
        watches->entry_chunk = chunk;
        watches->entry_at = chunk->used;
    }
    *change = (struct change){
        .index = effect->index,
        .session = effect->session,
        .token = effect->token,
        .mode = (uint8_t)effect->mode,
        .cause = (uint8_t)effect->cause,
        .granted = effect->type == FL_EFF_GRANT,
        .name_len = (uint16_t)effect->name.len,
    };
    memcpy(change->name, effect->name.data, effect->name.len);
    chunk->used += size;
    chunk->n_changes++;
    chunk->last_index = effect->index;
    watches->n_changes++;
    watches->n_bytes += size;
}

static void forget_oldest(struct watches *watches)
{
    while (watches->first != watches->last &&
           (watches->n_changes > FL_WATCH_CHANGES_MAX || watches->n_bytes > FL_WATCH_BYTES_MAX)) {
        struct watch_chunk *chunk = watches->first;

        watches->first = chunk->next;
        watches->n_changes -= chunk->n_changes;
        watches->n_bytes -= chunk->used;
        watches->lost_index = chunk->last_index;
        free(chunk);
    }
}

void fl_node__watch_lost(struct fl_node *node, uint64_t index)
{
    forget_changes(&node->watches);
    node->watches.lost_index = index;
}

/* --- Telling --- */

static struct fl_str client_of(const struct fl_node *node, struct fl_session_id session)
{
    struct fl_session_info info;

    if (!fl_machine_session(node->machine, session, &info))
        return (struct fl_str){NULL, 0};
    return info.client;
}

static void tell(struct fl_node *node, const struct watch *watch, const struct change *change)
{
    struct fl_push push = {
        .type = FL_PUSH_WATCH,
        .tag = watch->tag,
        .index = change->index,
        .session = change->session,
        .client = client_of(node, change->session),
        .name = {change->name, change->name_len},
        .token = change->token,
        .mode = (enum fl_mode)change->mode,
        .cause = (enum fl_cause)change->cause,
        .granted = change->granted,
    };

    fl_node__send_push(node, watch->link, &push);
}

static bool is_watched(const struct watch *watch, struct fl_str name)
{
    return watch->is_prefix ? fl_str_has_prefix(name, watch->name)
                            : fl_str_equal(name, watch->name);
}

static void tell_all(struct fl_node *node, const struct change *change)
{
    struct watches *watches = &node->watches;
    struct fl_str name = {change->name, change->name_len};
    struct watch *exact = NULL;

    FL_LIST_EACH(at, &watches->prefixes)
    {
        struct watch *watch = FL_CONTAINER_OF(at, struct watch, in_place);

        if (is_watched(watch, name))
            tell(node, watch, change);
    }
    if (watches->names.len > 0)
        exact = fl_map_find(&watches->names, hash_name(node, name), watches_name, &name);
    if (exact == NULL)
        return;
    tell(node, exact, change);
    FL_LIST_EACH(at, &exact->in_place)
    {
        tell(node, FL_CONTAINER_OF(at, struct watch, in_place), change);
    }
}

/* Walks changes from a place in the ring. */
static const struct change *next_change(struct watch_chunk **chunk, size_t *at)
{
    const struct change *change;

    while (*chunk != NULL && *at >= (*chunk)->used) {
        *chunk = (*chunk)->next;
        *at = 0;
    }
    if (*chunk == NULL)
        return NULL;
    change = (const struct change *)(const void *)((*chunk)->bytes + *at);
    *at += size_of_change(change->name_len);
    return change;
}

void fl_node__watch_entry_done(struct fl_node *node)
{
    struct watches *watches = &node->watches;
    const struct change *change;

    while (watches->n > 0 &&
           (change = next_change(&watches->entry_chunk, &watches->entry_at)) != NULL)
        tell_all(node, change);
    watches->entry_chunk = NULL;
    forget_oldest(watches);
}

/* --- Beginning --- */

bool fl_node__watch_is_allowed(const struct fl_node *node, const struct fl_request *request)
{
    return node->watches.n < FL_WATCHES_MAX &&
           (!request->is_prefix || node->watches.n_prefixes < FL_WATCH_PREFIXES_MAX);
}

static void watch_add(struct fl_node *node, struct watch *watch)
{
    struct watches *watches = &node->watches;
    struct watch *twin;

    fl_list_append(&watch->link->watches, &watch->in_link);
    watches->n++;
    if (watch->is_prefix) {
        fl_list_append(&watches->prefixes, &watch->in_place);
        watches->n_prefixes++;
        return;
    }
    watch->hash = hash_name(node, watch->name);
    twin = fl_map_find(&watches->names, watch->hash, watches_name, &watch->name);
    if (twin != NULL)
        fl_list_append(&twin->in_place, &watch->in_place);
    else
        fl_map_insert(&watches->names, watch->hash, watch);
}

static struct watch *watch_new(struct fl_node *node, struct link *link,
                               const struct fl_request *request)
{
    struct watch *watch = fl_xalloc(sizeof *watch + request->name.len);
    char *name = (char *)(watch + 1);

    if (request->name.len > 0)
        memcpy(name, request->name.data, request->name.len);
    *watch = (struct watch){.link = link,
                            .tag = request->tag,
                            .is_prefix = request->is_prefix,
                            .name = {name, request->name.len}};
    fl_list_init(&watch->in_place);
    watch_add(node, watch);
    return watch;
}

static void watch_free(struct fl_node *node, struct watch *watch)
{
    struct watches *watches = &node->watches;
    struct fl_list *twin = fl_list_first(&watch->in_place);

    watches->n--;
    if (watch->is_prefix)
        watches->n_prefixes--;
    else if (fl_map_remove(&watches->names, watch->hash, watch) && twin != NULL)
        fl_map_insert(&watches->names, watch->hash, FL_CONTAINER_OF(twin, struct watch, in_place));
    fl_list_remove(&watch->in_place);
    fl_list_remove(&watch->in_link);
    free(watch);
}

static void tell_end(struct fl_node *node, const struct watch *watch, const char *why)
{
    struct fl_push push = {.type = FL_PUSH_WATCH_END, .tag = watch->tag, .text = fl_str_from(why)};

    fl_node__send_push(node, watch->link, &push);
}

struct present {
    struct fl_node *node;
    const struct watch *watch;
    size_t told;
};

static void tell_present(void *ctx, const struct fl_request_info *info)
{
    struct present *present = ctx;
    struct fl_push push = {
        .type = FL_PUSH_WATCH,
        .tag = present->watch->tag,
        .index = present->node->applied_index,
        .session = info->session,
        .client = info->client,
        .name = info->name,
        .token = info->token,
        .mode = info->mode,
        .granted = true,
        .present = true,
    };

    if (info->token == 0 || present->told++ >= FL_WATCH_PRESENT_MAX)
        return;
    fl_node__send_push(present->node, present->watch->link, &push);
}

static bool tell_present_name(void *ctx, const struct fl_name_info *info)
{
    struct present *present = ctx;
    struct fl_name_info again;

    fl_machine_describe(present->node->machine, info->name, 0, &again, tell_present, present);
    return present->told <= FL_WATCH_PRESENT_MAX;
}

/* NULL, or why it cannot be. */
static const char *begin_with_present(struct fl_node *node, const struct watch *watch)
{
    struct present present = {node, watch, 0};
    struct fl_str none = {NULL, 0};
    struct fl_name_info info;

    if (watch->is_prefix)
        fl_machine_list(node->machine, watch->name, none, FL_WATCH_PRESENT_MAX + 1,
                        tell_present_name, &present);
    else
        fl_machine_describe(node->machine, watch->name, 0, &info, tell_present, &present);
    return present.told > FL_WATCH_PRESENT_MAX ? "too many holders: watch a longer prefix" : NULL;
}

static const char *go_on_from(struct fl_node *node, const struct watch *watch, uint64_t from_index)
{
    struct watch_chunk *chunk = node->watches.first;
    const struct change *change;
    size_t at = 0;

    if (from_index <= node->watches.lost_index)
        return "the changes since that index are not kept: begin without an index";
    if (from_index > node->applied_index)
        return "that index is not in this log: begin without an index";
    while ((change = next_change(&chunk, &at)) != NULL) {
        struct fl_str name = {change->name, change->name_len};

        if (change->index >= from_index && is_watched(watch, name))
            tell(node, watch, change);
    }
    return NULL;
}

void fl_node__watch_begin(struct fl_node *node, struct link *link, const struct fl_request *request)
{
    struct fl_reply reply = {
        .tag = request->tag, .request_type = request->type, .index = node->applied_index};
    struct fl_push caught_up = {
        .type = FL_PUSH_CAUGHT_UP, .tag = request->tag, .index = node->applied_index};
    struct watch *watch;
    const char *why;

    fl_node__send_reply(node, link, &reply);
    watch = watch_new(node, link, request);
    if (request->from_index == 0)
        why = begin_with_present(node, watch);
    else
        why = go_on_from(node, watch, request->from_index);
    if (why == NULL) {
        fl_node__send_push(node, link, &caught_up);
        return;
    }
    tell_end(node, watch, why);
    watch_free(node, watch);
}

void fl_node__watch_end(struct fl_node *node, struct link *link, uint64_t tag)
{
    FL_LIST_EACH(at, &link->watches)
    {
        struct watch *watch = FL_CONTAINER_OF(at, struct watch, in_link);

        if (watch->tag != tag)
            continue;
        watch_free(node, watch);
        return;
    }
}

void fl_node__watch_end_all(struct fl_node *node, struct link *link, const char *why)
{
    FL_LIST_EACH(at, &link->watches)
    {
        struct watch *watch = FL_CONTAINER_OF(at, struct watch, in_link);

        if (why != NULL)
            tell_end(node, watch, why);
        watch_free(node, watch);
    }
}
