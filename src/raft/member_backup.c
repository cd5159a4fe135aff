/* Backups of a running cluster: a snapshot of the state as it is now, handed out piece by piece, as
 * the asker comes for more. One at a time; it is forgotten when nobody comes for a while. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/backup.h"
#include "raft/member_parts.h"

#define TAKE_MAX_MS 120000
#define IDLE_MAX_MS 60000
#define RETRY_MS    500

struct fl_member_backup {
    uint64_t id;
    uint64_t index; /* the state is at least that of this entry */
    uint64_t touched_ms;
    uint64_t link, tag;           /* who waits for it to begin; link 0: it has begun */
    struct fl_snapshot *snapshot; /* a reference */
    struct fl_snapshot_reader *reader;
    uint32_t seed;
    uint64_t offset, state_at; /* of the next piece, in the file and in the state */
    bool is_ended;             /* the end mark is in the piece */
    struct fl_buf piece;       /* the last one, in case it is asked for again */
    uint64_t piece_offset;
    uint8_t chunk[FL_BACKUP_CHUNK_SIZE];
};

static void reply_to(struct fl_member *m, uint64_t link, const struct fl_reply *reply)
{
    fl_buf_clear(&m->scratch);
    fl_buf_put_u8(&m->scratch, FL_LINK_REPLY);
    fl_reply_encode(&m->scratch, reply);
    fl_member__send_to_link(m, link, m->scratch.data, m->scratch.len);
}

static void refuse(struct fl_member *m, uint64_t link, uint64_t tag, enum fl_request_type type,
                   enum fl_reply_status status)
{
    struct fl_reply reply = {
        .tag = tag, .request_type = type, .status = status, .retry_ms = RETRY_MS};

    reply.leader_id = fl_engine_leader(m->engine);
    reply.term = fl_engine_term(m->engine);
    reply_to(m, link, &reply);
}

static void refuse_read(struct fl_member *m, uint64_t link, const struct fl_request *request,
                        const char *why)
{
    struct fl_reply reply = {
        .tag = request->tag,
        .request_type = FL_REQ_BACKUP_READ,
        .status = FL_REPLY_INVALID,
        .field = FL_STR("backup_id"),
        .text = fl_str_from(why),
    };

    reply_to(m, link, &reply);
}

void fl_member__backup_drop(struct fl_member *m)
{
    struct fl_member_backup *b = m->backup;

    if (b == NULL)
        return;
    m->backup = NULL;
    if (b->link != 0)
        refuse(m, b->link, b->tag, FL_REQ_BACKUP, FL_REPLY_BUSY);
    fl_snapshot_reader_free(b->reader);
    fl_snapshot_unref(b->snapshot);
    fl_buf_deinit(&b->piece);
    free(b);
}

void fl_member__backup_link_down(struct fl_member *m, uint64_t link)
{
    if (m->backup == NULL || m->backup->link != link)
        return;
    m->backup->link = 0;
    if (m->backup->reader == NULL)
        fl_member__backup_drop(m);
}

bool fl_member__backup_wants_snapshot(const struct fl_member *m)
{
    return m->backup != NULL && m->backup->snapshot == NULL && m->snapshot_index < m->backup->index;
}

/* --- Beginning --- */

static void begin(struct fl_member *m, uint64_t link, const struct fl_request *request)
{
    if (fl_engine_role(m->engine) != FL_ROLE_LEADER) {
        refuse(m, link, request->tag, FL_REQ_BACKUP, FL_REPLY_NOT_LEADER);
        return;
    }
    /* An operator who asks again gave the other one up. */
    if (m->backup != NULL && m->backup->link != 0) {
        refuse(m, link, request->tag, FL_REQ_BACKUP, FL_REPLY_BUSY);
        return;
    }
    fl_member__backup_drop(m);
    m->backup = fl_xcalloc(1, sizeof *m->backup);
    m->backup->id = ++m->last_backup;
    m->backup->index = fl_engine_applied_index(m->engine);
    m->backup->touched_ms = fl_loop_now_ms(m->loop);
    m->backup->link = link;
    m->backup->tag = request->tag;
    fl_member__wake(m);
}

static uint64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The figures are those of now: a moment later than the state's, and only for people. So is the
 * token, which the restore reads from the state itself. */
static void put_head(struct fl_member *m, struct fl_member_backup *b)
{
    const struct fl_machine *machine = fl_node_machine(m->node);
    const struct fl_store_snapshot *content = b->snapshot->content;
    struct fl_machine_stats stats;
    uint8_t bytes[FL_BACKUP_HEAD_SIZE];
    struct fl_backup_head head = {
        .node_id = m->node_id,
        .index = b->snapshot->index,
        .term = b->snapshot->term,
        .made_at_ms = wall_ms(),
        .token = fl_machine_token(machine),
        .size = content->size,
    };

    fl_machine_stats(machine, &stats);
    head.sessions = stats.sessions;
    head.names = stats.names;
    head.holds = stats.holds;
    memcpy(head.cluster_id, m->cluster_id, sizeof head.cluster_id);
    fl_backup_head_encode(&head, bytes);
    b->seed = fl_backup_seed(bytes);
    fl_buf_clear(&b->piece);
    fl_buf_put(&b->piece, bytes, sizeof bytes);
    b->piece_offset = 0;
    b->offset = sizeof bytes;
}

static void tell_begun(struct fl_member *m, struct fl_member_backup *b)
{
    const struct fl_store_snapshot *content = b->snapshot->content;
    struct fl_reply reply = {
        .tag = b->tag,
        .request_type = FL_REQ_BACKUP,
        .index = b->snapshot->index,
        .request_id = b->id,
        .node_id = m->node_id,
        .size = fl_backup_file_size(content->size),
        .token = fl_machine_token(fl_node_machine(m->node)),
    };

    fl_info("member", "a backup begins, of the state at entry %llu",
            (unsigned long long)b->snapshot->index);
    reply_to(m, b->link, &reply);
    b->link = 0;
}

static void open_snapshot(struct fl_member *m, struct fl_member_backup *b)
{
    const struct fl_store_snapshot *content = m->newest->content;
    struct fl_store_fault fault;

    if (fl_snapshot_reader_new_unchecked(m->store, content->path, &b->reader, &fault) < 0) {
        fl_error("member", "no backup can be taken: %s", fault.text);
        fl_member__backup_drop(m);
        return;
    }
    b->snapshot = fl_snapshot_ref(m->newest);
    put_head(m, b);
    tell_begun(m, b);
}

void fl_member__backup_step(struct fl_member *m)
{
    struct fl_member_backup *b = m->backup;
    uint64_t now_ms = fl_loop_now_ms(m->loop);

    if (b == NULL)
        return;
    if (now_ms >= b->touched_ms + (b->reader == NULL ? TAKE_MAX_MS : IDLE_MAX_MS)) {
        fl_member__backup_drop(m);
        return;
    }
    if (b->reader == NULL && m->newest != NULL && m->newest->index >= b->index)
        open_snapshot(m, b);
}

/* --- Reading --- */

/* One chunk becomes one piece; behind the last one comes the end mark. */
static int next_piece(struct fl_member_backup *b)
{
    size_t used = 0;

    b->piece_offset = b->offset;
    fl_buf_clear(&b->piece);
    if (b->is_ended)
        return 0;
    while (used < sizeof b->chunk) {
        long n = fl_snapshot_reader_read(b->reader, b->chunk + used, sizeof b->chunk - used);

        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        used += (size_t)n;
    }
    if (used != 0) {
        fl_backup_put_chunk(&b->piece, b->seed, b->offset, b->chunk, (uint32_t)used);
        b->state_at += used;
    } else {
        fl_backup_put_end(&b->piece, b->seed, b->offset, b->state_at);
        b->is_ended = true;
    }
    b->offset += b->piece.len;
    return 0;
}

static void read_on(struct fl_member *m, uint64_t link, const struct fl_request *request)
{
    struct fl_member_backup *b = m->backup;
    struct fl_reply reply = {.tag = request->tag, .request_type = FL_REQ_BACKUP_READ};

    if (b == NULL || b->reader == NULL || b->id != request->request_id) {
        refuse_read(m, link, request, "is not known here (any more): begin again");
        return;
    }
    b->touched_ms = fl_loop_now_ms(m->loop);
    if (request->from_index == b->offset && next_piece(b) < 0) {
        refuse_read(m, link, request, "was overtaken by newer snapshots: begin again");
        fl_member__backup_drop(m);
        return;
    }
    if (request->from_index != b->piece_offset) {
        refuse_read(m, link, request, "is read from its beginning to its end, without gaps");
        return;
    }
    reply.index = b->snapshot->index;
    reply.bytes = (struct fl_str){(const char *)b->piece.data, b->piece.len};
    reply_to(m, link, &reply);
}

bool fl_member__backup_request(struct fl_member *m, uint64_t link, const uint8_t *data, size_t len)
{
    struct fl_request request;

    if (len == 0 || (data[0] != FL_REQ_BACKUP && data[0] != FL_REQ_BACKUP_READ) ||
        fl_request_decode(data, len, &request) < 0)
        return false;
    if (request.type == FL_REQ_BACKUP)
        begin(m, link, &request);
    else
        read_on(m, link, &request);
    return true;
}
