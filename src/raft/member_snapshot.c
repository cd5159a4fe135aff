/* Snapshots of a member: taken in a forked child (a frozen copy, without stopping the loop), sent
 * to followers that are too far behind, received, and put in place. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "raft/member_parts.h"
#include "raft/message.h"

#define PATH_BYTES        512
#define SNAPSHOT_RETRY_MS 10000

/* --- Reading one --- */

int fl_member__load_machine(struct fl_member *m, const struct fl_snapshot *snapshot,
                            const uint64_t hash_key[2], struct fl_machine **ret_machine, char *why)
{
    const struct fl_store_snapshot *content = snapshot->content;
    struct fl_store_fault fault = {{0}};
    struct fl_snapshot_reader *reader;
    int r = fl_snapshot_reader_new(m->store, content->path, &reader, &fault);

    if (r < 0) {
        snprintf(why, PATH_BYTES, "%.480s", fault.text);
        return r;
    }
    r = fl_machine_load(hash_key, fl_snapshot_reader_read, reader, ret_machine);
    fl_snapshot_reader_free(reader);
    if (r < 0)
        snprintf(why, PATH_BYTES, "%.400s does not hold a lock state (%s)", content->path,
                 fl_error_text(r));
    return r;
}

/* --- Taking one --- */

struct fl_taking {
    struct fl_member *member;
    struct fl_snapshot *snapshot; /* a reference; without content */
    pid_t child;
    uv_pipe_t pipe; /* its end tells that the child is done; what it says is the path */
    char path[PATH_BYTES];
    size_t path_len;
    uint64_t begun_ms;
    bool is_cancelled;
};

static int write_state(void *writer, const void *data, size_t len)
{
    return fl_snapshot_writer_write(writer, data, len);
}

/* In the child: the parent's memory as it was at the fork. Ends the process. */
__attribute__((noreturn)) static void run_child(struct fl_member *m,
                                                const struct fl_snapshot *snapshot, int out)
{
    struct fl_snapshot_writer *writer;
    char path[PATH_BYTES] = {0};

    /* A node that is killed and started again must not find its directory still in use. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fl_snapshot_writer_new(m->store, snapshot, &writer) < 0)
        _exit(EXIT_FAILURE);
    if (fl_machine_save(fl_node_machine(m->node), write_state, writer) < 0) {
        fl_snapshot_writer_abort(writer);
        _exit(EXIT_FAILURE);
    }
    if (fl_snapshot_writer_finish(writer, path) < 0)
        _exit(EXIT_FAILURE);
    if (write(out, path, strlen(path)) != (ssize_t)strlen(path))
        _exit(EXIT_FAILURE);
    _exit(EXIT_SUCCESS);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    struct fl_taking *taking = handle->data;
    struct fl_member *m = taking->member;

    m->taking = NULL;
    fl_snapshot_unref(taking->snapshot);
    free(taking);
    fl_member__wake(m);
}

static void commit_taken(struct fl_taking *taking)
{
    struct fl_member *m = taking->member;
    uint64_t now_ms = fl_loop_now_ms(m->loop);
    int r = fl_snapshot_file_commit(m->store, taking->path, taking->snapshot);

    if (r < 0) {
        fl_error("member",
                 "the snapshot up to entry %llu could not be put in place: %s; trying again",
                 (unsigned long long)taking->snapshot->index, fl_error_text(r));
        fl_engine_snapshot_abort(m->engine);
        return;
    }
    m->snapshot_index = taking->snapshot->index;
    fl_snapshot_unref(m->newest);
    m->newest = fl_snapshot_ref(taking->snapshot);
    fl_info("member", "took a snapshot up to entry %llu in %llu ms",
            (unsigned long long)taking->snapshot->index,
            (unsigned long long)(now_ms - taking->begun_ms));
    fl_engine_snapshot_finish(m->engine, now_ms, taking->snapshot);
}

static void on_child_done(struct fl_taking *taking)
{
    struct fl_member *m = taking->member;
    int status = -1;

    /* The pipe is closed: the child is at its end. */
    while (waitpid(taking->child, &status, 0) < 0 && errno == EINTR)
        ;
    if (taking->is_cancelled)
        fl_engine_snapshot_abort(m->engine);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SUCCESS && taking->path_len != 0)
        commit_taken(taking);
    else {
        fl_warn("member",
                "a snapshot could not be written (disk full?); the log is kept, trying again");
        m->snapshot_retry_ms = fl_loop_now_ms(m->loop) + SNAPSHOT_RETRY_MS;
        fl_engine_snapshot_abort(m->engine);
    }
    uv_close((uv_handle_t *)&taking->pipe, on_pipe_closed);
}

static void on_pipe_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct fl_taking *taking = handle->data;

    (void)suggested;
    *buf = uv_buf_init(taking->path + taking->path_len,
                       (unsigned)(sizeof taking->path - 1 - taking->path_len));
}

static void on_pipe_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct fl_taking *taking = stream->data;

    (void)buf;
    if (n > 0)
        taking->path_len += (size_t)n;
    else if (n < 0)
        on_child_done(taking);
}

static int fork_child(struct fl_taking *taking)
{
    struct fl_member *m = taking->member;
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return fl_error_from_errno(errno);
    taking->child = fork();
    if (taking->child == 0)
        run_child(m, taking->snapshot, ends[1]);
    close(ends[1]);
    if (taking->child < 0 || uv_pipe_open(&taking->pipe, ends[0]) != 0) {
        close(ends[0]);
        return FL_E_NOMEM;
    }
    return uv_read_start((uv_stream_t *)&taking->pipe, on_pipe_alloc, on_pipe_read);
}

void fl_member__maybe_take_snapshot(struct fl_member *m)
{
    uint64_t now_ms = fl_loop_now_ms(m->loop);
    struct fl_snapshot *snapshot;
    struct fl_taking *taking;
    int r;

    if (m->taking != NULL || m->is_stopping || now_ms < m->snapshot_retry_ms ||
        (fl_engine_applied_index(m->engine) < m->snapshot_index + m->snapshot_every &&
         !fl_member__backup_wants_snapshot(m)) ||
        !fl_engine_snapshot_begin(m->engine, &snapshot))
        return;
    taking = fl_xcalloc(1, sizeof *taking);
    taking->member = m;
    taking->snapshot = snapshot;
    taking->begun_ms = now_ms;
    uv_pipe_init(fl_loop_uv(m->loop), &taking->pipe, 0);
    taking->pipe.data = taking;
    m->taking = taking;
    r = fork_child(taking);
    if (r < 0) {
        fl_warn("member", "cannot fork for a snapshot (%s); trying again", fl_error_text(r));
        m->snapshot_retry_ms = now_ms + SNAPSHOT_RETRY_MS;
        fl_engine_snapshot_abort(m->engine);
        uv_close((uv_handle_t *)&taking->pipe, on_pipe_closed);
    }
}

/* --- Sending one --- */

struct sending {
    struct fl_list link;
    uint64_t to;
    struct fl_outgoing *outgoing;
};

static struct sending *find_sending(const struct fl_member *m, uint64_t to)
{
    FL_LIST_EACH(link, &m->sending)
    {
        struct sending *sending = FL_CONTAINER_OF(link, struct sending, link);

        if (sending->to == to)
            return sending;
    }
    return NULL;
}

static void on_sent(void *ctx, uint64_t to, bool is_ok, const char *why)
{
    struct fl_member *m = ctx;
    struct sending *sending = find_sending(m, to);

    if (is_ok)
        fl_info("member", "node %llu has the snapshot", (unsigned long long)to);
    else
        fl_warn("member",
                "sending a snapshot to node %llu broke off: %s; it is sent again when asked for",
                (unsigned long long)to, why);
    if (sending != NULL) {
        fl_list_remove(&sending->link);
        free(sending);
    }
    fl_member__wake(m);
}

void fl_member__send_snapshot(struct fl_member *m, uint64_t to,
                              const struct fl_raft_message *message)
{
    const struct fl_store_snapshot *content;
    struct fl_snapshot_reader *reader;
    struct fl_store_fault fault;
    struct sending *sending;

    if (m->is_stopping || find_sending(m, to) != NULL || m->newest == NULL)
        return;
    content = m->newest->content;
    if (fl_snapshot_reader_new_unchecked(m->store, content->path, &reader, &fault) < 0) {
        fl_error("member", "cannot send a snapshot: %s", fault.text);
        return;
    }
    fl_buf_clear(&m->scratch);
    fl_raft_message_encode(&m->scratch, message);
    sending = fl_xcalloc(1, sizeof *sending);
    sending->to = to;
    sending->outgoing = fl_outgoing_new(m->loop, m->transport, to, m->scratch.data, m->scratch.len,
                                        reader, on_sent, m);
    if (sending->outgoing == NULL) {
        free(sending);
        return;
    }
    fl_list_append(&m->sending, &sending->link);
    fl_info("member", "node %llu is far behind: sending the snapshot up to entry %llu",
            (unsigned long long)to, (unsigned long long)m->newest->index);
}

/* --- Receiving one --- */

static void forget_header(struct fl_member *m)
{
    fl_raft_message_free(m->receiving_header);
    m->receiving_header = NULL;
}

static struct fl_snapshot_writer *incoming_begin(void *ctx, uint64_t from, const void *header,
                                                 size_t len)
{
    struct fl_member *m = ctx;
    struct fl_snapshot_writer *writer;
    struct fl_raft_message *message;

    if (m->receiving_header != NULL || fl_raft_message_decode(header, len, &message) < 0)
        return NULL;
    if (message->type != FL_RAFT_INSTALL_SNAPSHOT ||
        fl_snapshot_writer_new(m->store, message->snapshot, &writer) < 0) {
        fl_raft_message_free(message);
        return NULL;
    }
    m->receiving_header = message;
    fl_info("member", "node %llu sends the snapshot up to entry %llu", (unsigned long long)from,
            (unsigned long long)message->snapshot->index);
    return writer;
}

/* Content that is not in place yet: the file goes when nobody wants it. */
static void free_received(void *content)
{
    struct fl_store_snapshot *received = content;

    unlink(received->path);
    free(received);
}

static void incoming_arrived(void *ctx, uint64_t from, const char *temporary_path)
{
    struct fl_member *m = ctx;
    struct fl_store_snapshot *received = fl_xcalloc(1, sizeof *received);
    struct fl_snapshot *snapshot = m->receiving_header->snapshot;

    snprintf(received->path, sizeof received->path, "%s", temporary_path);
    snapshot->content = received;
    snapshot->free_content = free_received;
    fl_engine_receive(m->engine, fl_loop_now_ms(m->loop), from, m->receiving_header);
    forget_header(m);
    fl_member__wake(m);
}

static void incoming_failed(void *ctx, uint64_t from, const char *why)
{
    struct fl_member *m = ctx;

    fl_warn("member", "receiving a snapshot from node %llu broke off: %s", (unsigned long long)from,
            why);
    forget_header(m);
}

static void incoming_closed(void *ctx, struct fl_incoming *incoming)
{
    struct fl_member *m = ctx;

    if (m->receiving == incoming)
        m->receiving = NULL;
    fl_member__wake(m);
}

static const struct fl_incoming_ops incoming_ops = {
    .begin = incoming_begin,
    .arrived = incoming_arrived,
    .failed = incoming_failed,
    .closed = incoming_closed,
};

void fl_member__accept_snapshot(struct fl_member *m, uint64_t from, struct fl_framed *c)
{
    /* One at a time: a newer one may come from a newer leader, and the older may be half open. */
    if (m->receiving != NULL) {
        fl_incoming_cancel(m->receiving);
        fl_framed_close(c, "another snapshot is being received");
        return;
    }
    m->receiving = fl_incoming_new(c, from, &incoming_ops, m);
}

void fl_member__install_snapshot(struct fl_member *m, struct fl_snapshot *snapshot)
{
    struct fl_store_snapshot *received = snapshot->content;
    struct fl_machine *machine;
    uint64_t hash_key[2];
    char why[PATH_BYTES], path[PATH_BYTES];
    int r;

    fl_member__fresh_hash_key(hash_key);
    snprintf(path, sizeof path, "%s", received->path);
    free(received);
    snapshot->content = NULL;
    r = fl_snapshot_file_commit(m->store, path, snapshot);
    if (r == FL_OK)
        r = fl_member__load_machine(m, snapshot, hash_key, &machine, why);
    else
        snprintf(why, sizeof why, "%.400s cannot be put in place: %s", path, fl_error_text(r));
    if (r < 0) {
        fl_error("member", "a snapshot from the leader cannot be used: %s; this node stops", why);
        exit(EXIT_FAILURE);
    }
    fl_store_reset(m->store, snapshot->index + 1);
    m->snapshot_index = snapshot->index;
    fl_snapshot_unref(m->newest);
    m->newest = fl_snapshot_ref(snapshot);
    fl_node_take_machine(m->node, fl_loop_now_ms(m->loop), machine);
    fl_info("member", "installed the snapshot up to entry %llu",
            (unsigned long long)snapshot->index);
    fl_engine_installed(m->engine, fl_loop_update_now_ms(m->loop));
}

/* --- Stopping --- */

void fl_member__stop_snapshots(struct fl_member *m)
{
    if (m->taking != NULL && !m->taking->is_cancelled) {
        m->taking->is_cancelled = true;
        kill(m->taking->child, SIGKILL);
    }
    FL_LIST_EACH(link, &m->sending)
    {
        struct sending *sending = FL_CONTAINER_OF(link, struct sending, link);

        fl_outgoing_cancel(sending->outgoing);
        fl_list_remove(&sending->link);
        free(sending);
    }
    if (m->receiving != NULL)
        fl_incoming_cancel(m->receiving);
    fl_member__backup_drop(m);
}

bool fl_member__snapshots_are_idle(const struct fl_member *m)
{
    return m->taking == NULL && fl_list_is_empty(&m->sending) && m->receiving == NULL;
}
