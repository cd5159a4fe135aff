/* N7: commands are gathered in drafts; one draft is in flight at a time, and what arrives meanwhile
 * goes into the next (group commit). A draft that is full is followed by another. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "node/internal.h"

/* Bytes of an encoded command beside its strings: a bound, for batch_bytes_max. */
#define COMMAND_BYTES_MAX 80
#define TEXT_CHUNK_SIZE   (64u * 1024)

/* Strings of commands: chunks never move, since the commands point into them. */
struct text_chunk {
    struct text_chunk *next;
    size_t used, size;
    char text[];
};

static struct text_chunk *chunk_new(struct text_chunk *next, size_t size)
{
    struct text_chunk *chunk = fl_xalloc(sizeof *chunk + size);

    chunk->next = next;
    chunk->used = 0;
    chunk->size = size;
    return chunk;
}

static struct fl_str copy_text(struct draft *draft, struct fl_str s)
{
    struct text_chunk *chunk = draft->texts;
    char *copy;

    if (s.len == 0)
        return (struct fl_str){NULL, 0};
    if (chunk == NULL || chunk->size - chunk->used < s.len)
        chunk = draft->texts = chunk_new(chunk, s.len > TEXT_CHUNK_SIZE ? s.len : TEXT_CHUNK_SIZE);
    copy = chunk->text + chunk->used;
    memcpy(copy, s.data, s.len);
    chunk->used += s.len;
    return (struct fl_str){copy, s.len};
}

static void draft_clear(struct draft *draft)
{
    for (size_t i = 0; i < draft->n; i++) {
        if (draft->owners[i] != NULL)
            draft->owners[i]->draft = NULL;
    }
    while (draft->texts != NULL && draft->texts->next != NULL) {
        struct text_chunk *chunk = draft->texts;

        draft->texts = chunk->next;
        free(chunk);
    }
    if (draft->texts != NULL)
        draft->texts->used = 0;
    draft->n = draft->bytes = 0;
    draft->index = 0;
}

static void draft_free(struct draft *draft)
{
    if (draft == NULL)
        return;
    draft_clear(draft);
    free(draft->texts);
    free(draft->commands);
    free(draft->owners);
    free(draft);
}

static struct draft *draft_append(struct fl_node *node)
{
    struct draft *draft = node->spare != NULL ? node->spare : fl_xcalloc(1, sizeof *draft);

    node->spare = NULL;
    fl_list_append(&node->drafts, &draft->in_node);
    return draft;
}

static struct draft *first_draft(const struct fl_node *node)
{
    struct fl_list *link = fl_list_first(&node->drafts);

    return link != NULL ? FL_CONTAINER_OF(link, struct draft, in_node) : NULL;
}

/* The draft that takes a command of so many bytes. */
static struct draft *open_draft(struct fl_node *node, size_t bytes)
{
    struct draft *last = first_draft(node);

    if (last != NULL)
        last = FL_CONTAINER_OF(node->drafts.prev, struct draft, in_node);
    if (last == NULL || last == node->in_flight || last->n >= node->config.batch_commands_max ||
        (last->n > 0 && last->bytes + bytes > node->config.batch_bytes_max))
        return draft_append(node);
    return last;
}

static void reserve_command(struct draft *draft)
{
    if (draft->n < draft->capacity)
        return;
    draft->capacity = fl_grow_capacity(draft->capacity, draft->n + 1, sizeof *draft->commands);
    draft->commands = fl_xrealloc(draft->commands, draft->capacity * sizeof *draft->commands);
    draft->owners = fl_xrealloc(draft->owners, draft->capacity * sizeof *draft->owners);
}

void fl_node__draft_add(struct fl_node *node, const struct fl_command *command,
                        struct pending *owner)
{
    size_t bytes = COMMAND_BYTES_MAX + command->name.len + command->client.len +
                   command->actor.len + command->reason.len;
    struct draft *draft = open_draft(node, bytes);
    struct fl_command *copy;

    reserve_command(draft);
    copy = &draft->commands[draft->n];
    *copy = *command;
    copy->name = copy_text(draft, command->name);
    copy->client = copy_text(draft, command->client);
    copy->actor = copy_text(draft, command->actor);
    copy->reason = copy_text(draft, command->reason);
    draft->owners[draft->n] = owner;
    if (owner != NULL) {
        owner->draft = draft;
        owner->slot = (uint32_t)draft->n;
    }
    draft->n++;
    draft->bytes += bytes;
}

static void drop(struct fl_node *node, struct draft *draft)
{
    fl_list_remove(&draft->in_node);
    if (node->in_flight == draft)
        node->in_flight = NULL;
    draft_clear(draft);
    if (node->spare == NULL)
        node->spare = draft;
    else
        draft_free(draft);
}

/* Consensus would not have it: nothing of it is in the log, and never will be. */
static void refuse(struct fl_node *node, struct draft *draft)
{
    for (size_t i = 0; i < draft->n; i++) {
        const struct fl_command *command = &draft->commands[i];

        if (draft->owners[i] != NULL)
            fl_node__answer_not_leader(node, draft->owners[i]);
        else if (command->type == FL_CMD_EXPIRE_SESSION)
            fl_node__live_not_expired(node, command->session);
        else if (command->type == FL_CMD_NOTE_SILENCE)
            fl_node__live_note_refused(node, command->session);
    }
    drop(node, draft);
}

void fl_node__draft_propose(struct fl_node *node, bool even_empty)
{
    struct draft *draft;

    if (node->in_flight != NULL)
        return;
    fl_node__liveness_condemn(node);
    draft = first_draft(node);
    if (draft == NULL && !even_empty)
        return;
    if (draft == NULL)
        draft = draft_append(node);
    fl_buf_clear(&node->entry);
    fl_batch_begin(&node->entry, fl_node__log_now(node));
    for (size_t i = 0; i < draft->n; i++)
        fl_batch_add(&node->entry, &draft->commands[i]);
    node->in_flight = draft;
    draft->index = node->ops.propose(node->ctx, node->entry.data, node->entry.len);
    if (draft->index == 0)
        refuse(node, draft);
}

void fl_node__draft_done(struct fl_node *node)
{
    drop(node, node->in_flight);
}

void fl_node__drafts_clear(struct fl_node *node)
{
    struct draft *draft;

    while ((draft = first_draft(node)) != NULL)
        drop(node, draft);
}

void fl_node__drafts_deinit(struct fl_node *node)
{
    fl_node__drafts_clear(node);
    draft_free(node->spare);
}
