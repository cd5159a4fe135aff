/* The state as bytes. Everything stands in an order that the state itself gives (ids, names,
 * tokens, order of arrival), so equal states give equal bytes; docs/log-format.md describes them.
 *
 * Written and read in pieces: two million locks never stand in memory twice. */
#include "core/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/bugs.h"
#include "base/error.h"

#define MAGIC   0x504e534cu /* "LSNP" */
#define VERSION 1
/* A piece; no record is longer. */
#define PIECE_BYTES (64u * 1024)
#define RECORD_MAX  (16u * 1024)

enum record { RECORD_END = 0, RECORD_SESSION = 1, RECORD_NAME = 2, RECORD_CLAIM = 3 };
enum session_flag { SESSION_IS_DEAD = 1 };
enum claim_flag { CLAIM_MODE = 3, CLAIM_WAITS = 4, CLAIM_HAS_ASKER = 8 };
enum name_flag { NAME_IS_CLOSED = 1, NAME_HAS_LIMIT = 2 };

/* --- Saving --- */

struct saver {
    const struct fl_machine *m;
    fl_machine_writer write;
    void *ctx;
    struct fl_buf buf;
    int error;
};

static void flush(struct saver *s, size_t keep)
{
    if (s->error == FL_OK && s->buf.len > keep) {
        s->error = s->write(s->ctx, s->buf.data, s->buf.len);
        fl_buf_clear(&s->buf);
    }
}

static void save_finished(struct saver *s, const struct session *session)
{
    fl_buf_put_varint(&s->buf, session->n_finished);
    for (uint32_t i = 0; i < session->n_finished; i++) {
        const struct finished *f = fl_session_finished_at(session, i);

        fl_buf_put_u64(&s->buf, f->request_id);
        fl_buf_put_u64(&s->buf, f->name_hash);
        fl_buf_put_varint(&s->buf, f->token);
        fl_buf_put_varint(&s->buf, f->limit);
        fl_buf_put_u8(&s->buf, f->mode);
        fl_buf_put_u8(&s->buf, f->answer);
        fl_buf_put_u8(&s->buf, f->was_released);
    }
}

/* Live sessions by id, then the dead in the order of their death: a place in this order is how
 * claims name their session. */
static void save_session(struct saver *s, const struct session *session)
{
    fl_buf_put_u8(&s->buf, RECORD_SESSION);
    fl_buf_put_u64(&s->buf, session->id.high);
    fl_buf_put_u64(&s->buf, session->id.low);
    fl_buf_put_u8(&s->buf, session->is_dead ? SESSION_IS_DEAD : 0);
    fl_buf_put_u8(&s->buf, session->cause);
    fl_buf_put_varint(&s->buf, session->ttl_ms);
    fl_buf_put_varint(&s->buf, session->lock_delay_ms);
    fl_buf_put_varint(&s->buf, session->silence_ms);
    fl_buf_put_varint(&s->buf, session->opened_ms);
    fl_buf_put_str(&s->buf, (struct fl_str){session->client, session->client_len});
    save_finished(s, session);
    flush(s, PIECE_BYTES);
}

static void save_claim(struct saver *s, fl_handle handle, const uint32_t *order)
{
    const struct claim *claim = fl_claim_at(s->m, handle);

    fl_buf_put_u8(&s->buf, RECORD_CLAIM);
    fl_buf_put_varint(&s->buf, order[claim->session]);
    fl_buf_put_u64(&s->buf, claim->request_id);
    fl_buf_put_u8(&s->buf, (uint8_t)(claim->mode | (claim->is_wait ? CLAIM_WAITS : 0u) |
                                     (claim->asker != 0 ? CLAIM_HAS_ASKER : 0u)));
    if (claim->asker != 0)
        fl_buf_put_u16(&s->buf, (uint16_t)claim->asker);
    fl_buf_put_varint(&s->buf, claim->since_ms);
    if (claim->is_wait) {
        fl_buf_put_varint(&s->buf, claim->due->node.key);
        fl_buf_put_varint(&s->buf, claim->due->seq);
    } else {
        fl_buf_put_varint(&s->buf, claim->token);
    }
    flush(s, PIECE_BYTES);
}

static void save_ring(struct saver *s, fl_handle head, const uint32_t *order)
{
    for (fl_handle at = head; at != 0; at = fl_ring_next(s->m, IN_LOCK, head, at))
        save_claim(s, at, order);
}

static void save_name(struct saver *s, const struct lock *lock, const uint32_t *order)
{
    const struct extra *extra = fl_lock_extra(s->m, lock);
    bool is_closed = extra != NULL && extra->closing != NULL;
    bool has_limit = extra != NULL && extra->limit != 0;

    fl_buf_put_u8(&s->buf, RECORD_NAME);
    fl_buf_put_u8(&s->buf,
                  (uint8_t)((is_closed ? NAME_IS_CLOSED : 0) | (has_limit ? NAME_HAS_LIMIT : 0)));
    fl_buf_put_str(&s->buf, fl_lock_name(s->m, lock));
    if (is_closed) {
        fl_buf_put_varint(&s->buf, extra->closing->node.key);
        fl_buf_put_varint(&s->buf, extra->closing->seq);
    }
    if (has_limit)
        fl_buf_put_varint(&s->buf, extra->limit);
    save_ring(s, lock->holders, order);
    if (extra != NULL)
        save_ring(s, extra->waiters, order);
}

static void save_header(struct saver *s)
{
    const struct fl_machine *m = s->m;

    fl_buf_put_u32(&s->buf, MAGIC);
    fl_buf_put_u16(&s->buf, VERSION);
    fl_buf_put_u64(&s->buf, m->index);
    fl_buf_put_u64(&s->buf, m->now_ms);
    fl_buf_put_u64(&s->buf, m->history_hash);
    fl_buf_put_u64(&s->buf, m->token);
    fl_buf_put_u64(&s->buf, m->grants);
    fl_buf_put_u64(&s->buf, m->next_seq);
}

static void save_names(struct saver *s, const uint32_t *order)
{
    fl_handle at = fl_order_seek(s->m, FL_STR(""), false);

    while (at != 0 && s->error == FL_OK) {
        save_name(s, fl_lock_at(s->m, at), order);
        at = fl_order_next(s->m, at);
    }
}

int fl_machine_save(const struct fl_machine *m, fl_machine_writer write, void *ctx)
{
    struct saver s = {.m = m, .write = write, .ctx = ctx};
    uint32_t *order = fl_xcalloc(m->n_places, sizeof *order), n_saved = 0;
    size_t n;
    struct session **live = fl_sessions_sorted(m, &n);

    save_header(&s);
    for (size_t i = 0; i < n; i++) {
        order[live[i]->place] = n_saved++;
        save_session(&s, live[i]);
    }
    FL_LIST_EACH(link, &m->dead)
    {
        const struct session *session = FL_CONTAINER_OF(link, struct session, in_dead);

        order[session->place] = n_saved++;
        save_session(&s, session);
    }
    save_names(&s, order);
    fl_buf_put_u8(&s.buf, RECORD_END);
    flush(&s, 0);
    free(live);
    free(order);
    fl_buf_deinit(&s.buf);
    return s.error;
}

/* --- Loading --- */

/* Claims are read in the order of names, and linked in the order of tokens and of arrival. */
struct loaded_claim {
    struct claim model;
    uint64_t deadline_ms, order; /* order: the token, or seq */
};

struct loader {
    struct fl_machine *m;
    fl_machine_source read;
    void *ctx;
    uint8_t *data; /* owned; [at, len) is not parsed yet */
    size_t at, len;
    bool is_end;
    fl_handle lock;              /* of the last name record */
    struct loaded_claim *claims; /* owned */
    size_t n_claims, capacity;
    struct fl_session_id last_id; /* of live sessions, which rise */
    char last_name[FL_NAME_MAX];  /* of names, which rise */
    size_t last_name_len;
};

/* Sees to it that a whole record is there, or the end of the input. */
static int fill(struct loader *l)
{
    while (!l->is_end && l->len - l->at < RECORD_MAX) {
        long n;

        memmove(l->data, l->data + l->at, l->len - l->at);
        l->len -= l->at;
        l->at = 0;
        n = l->read(l->ctx, l->data + l->len, PIECE_BYTES + RECORD_MAX - l->len);
        if (n < 0)
            return (int)n;
        l->is_end = n == 0;
        l->len += (size_t)n;
    }
    return FL_OK;
}

static void load_finished(struct loader *l, struct fl_reader *r, struct session *session)
{
    uint64_t n = fl_reader_varint(r);

    if (n > FL_REQUESTS_REMEMBERED)
        r->failed = true;
    for (uint64_t i = 0; i < n && !r->failed; i++) {
        struct finished f = {
            .request_id = fl_reader_u64(r),
            .name_hash = fl_reader_u64(r),
            .token = fl_reader_varint(r),
        };
        uint64_t limit = fl_reader_varint(r);

        f.limit = (uint32_t)limit;
        f.mode = fl_reader_u8(r);
        f.answer = fl_reader_u8(r);
        f.was_released = fl_reader_u8(r) == 1;
        if (limit > FL_LIMIT_MAX || f.mode > FL_MODE_COUNTED || f.answer > FL_ANS_TOKENS_EXHAUSTED)
            r->failed = true;
        else
            fl_session_remember(l->m, session, &f);
    }
}

static bool id_rises(struct loader *l, struct fl_session_id id)
{
    bool rises =
        id.high > l->last_id.high || (id.high == l->last_id.high && id.low > l->last_id.low);

    l->last_id = id;
    return rises;
}

static int load_session(struct loader *l, struct fl_reader *r)
{
    struct fl_session_id id = {fl_reader_u64(r), fl_reader_u64(r)};
    uint8_t flags = fl_reader_u8(r), cause = fl_reader_u8(r);
    uint64_t ttl_ms = fl_reader_varint(r), lock_delay_ms = fl_reader_varint(r);
    uint64_t silence_ms = fl_reader_varint(r), opened_ms = fl_reader_varint(r);
    struct fl_str client = fl_reader_str(r, FL_CLIENT_MAX);
    bool is_dead = flags == SESSION_IS_DEAD;
    struct session *session;

    if (fl_reader_failed(r) || flags > SESSION_IS_DEAD || cause > FL_CAUSE_FORCED ||
        ttl_ms > FL_TTL_MS_MAX || lock_delay_ms > FL_LOCK_DELAY_MS_MAX || silence_ms > UINT32_MAX ||
        l->lock != 0 || fl_session_id_is_none(id))
        return FL_E_MALFORMED;
    if (!is_dead && (!fl_list_is_empty(&l->m->dead) || !id_rises(l, id)))
        return FL_E_MALFORMED;
    session = fl_session_add(l->m, id, client);
    session->ttl_ms = (uint32_t)ttl_ms;
    session->lock_delay_ms = (uint32_t)lock_delay_ms;
    session->silence_ms = (uint32_t)silence_ms;
    session->opened_ms = opened_ms;
    load_finished(l, r, session);
    if (is_dead)
        fl_session_bury(l->m, session, (enum fl_cause)cause);
    return fl_reader_failed(r) ? FL_E_MALFORMED : FL_OK;
}

/* A name record ends the one before it: somebody must have held it, waited for it, or closed it. */
static bool last_name_is_used(const struct loader *l)
{
    const struct extra *extra;

    if (l->lock == 0)
        return true;
    extra = fl_lock_extra(l->m, fl_lock_at(l->m, l->lock));
    return (l->n_claims != 0 && l->claims[l->n_claims - 1].model.lock == l->lock) ||
           (extra != NULL && extra->closing != NULL);
}

static int load_name(struct loader *l, struct fl_reader *r)
{
    uint8_t flags = fl_reader_u8(r);
    struct fl_str name = fl_reader_str(r, FL_NAME_MAX);
    struct fl_str last = {l->last_name, l->last_name_len};
    uint64_t closed_ms = 0, closed_seq = 0, limit = 0;

    if (flags & NAME_IS_CLOSED) {
        closed_ms = fl_reader_varint(r);
        closed_seq = fl_reader_varint(r);
    }
    if (flags & NAME_HAS_LIMIT)
        limit = fl_reader_varint(r);
    if (fl_reader_failed(r) || flags > (NAME_IS_CLOSED | NAME_HAS_LIMIT) || limit > FL_LIMIT_MAX ||
        ((flags & NAME_HAS_LIMIT) != 0 && limit == 0) ||
        ((flags & NAME_IS_CLOSED) != 0 && closed_seq >= l->m->next_seq) ||
        fl_name_fault(name) != NULL || fl_str_compare(name, last) <= 0 || !last_name_is_used(l))
        return FL_E_MALFORMED;
    memcpy(l->last_name, name.data, name.len);
    l->last_name_len = name.len;
    l->lock = fl_name_restore(l->m, name);
    if (flags != 0)
        fl_name_need_extra(l->m, l->lock)->limit = (uint32_t)limit;
    if (flags & NAME_IS_CLOSED)
        fl_lock_close(l->m, l->lock, closed_ms, closed_seq);
    return FL_OK;
}

static int load_claim(struct loader *l, struct fl_reader *r)
{
    uint64_t place = fl_reader_varint(r), request_id = fl_reader_u64(r);
    uint8_t bits = fl_reader_u8(r);
    bool is_wait = (bits & CLAIM_WAITS) != 0, has_asker = (bits & CLAIM_HAS_ASKER) != 0;
    uint16_t asker = has_asker ? fl_reader_u16(r) : 0;
    uint64_t since_ms = fl_reader_varint(r), number = fl_reader_varint(r), seq = 0;
    unsigned mode = bits & CLAIM_MODE;
    struct loaded_claim *claim;

    if (is_wait)
        seq = fl_reader_varint(r);
    if (fl_reader_failed(r) || l->lock == 0 || place >= l->m->n_places ||
        bits > (CLAIM_MODE | CLAIM_WAITS | CLAIM_HAS_ASKER) || has_asker != (asker != 0) ||
        mode == FL_MODE_NONE || since_ms > SINCE_MS_MAX ||
        (is_wait ? seq >= l->m->next_seq : number == 0 || number > l->m->token))
        return FL_E_MALFORMED;
    if (l->n_claims == l->capacity) {
        l->capacity = fl_grow_capacity(l->capacity, l->n_claims + 1, sizeof *l->claims);
        l->claims = fl_xrealloc(l->claims, l->capacity * sizeof *l->claims);
    }
    claim = &l->claims[l->n_claims++];
    memset(claim, 0, sizeof *claim);
    claim->model.request_id = request_id;
    claim->model.mode = mode & 3;
    claim->model.is_wait = is_wait;
    claim->model.since_ms = since_ms & SINCE_MS_MAX;
    claim->model.asker = asker;
    claim->model.lock = l->lock;
    claim->model.session = (uint32_t)place;
    claim->deadline_ms = is_wait ? number : 0;
    claim->order = is_wait ? seq : number;
    if (!is_wait)
        claim->model.token = number;
    return FL_OK;
}

static int load_record(struct loader *l, bool *ret_end)
{
    struct fl_reader r = fl_reader_from(l->data + l->at, l->len - l->at);
    int result;

    switch (fl_reader_u8(&r)) {
    case RECORD_SESSION:
        result = load_session(l, &r);
        break;
    case RECORD_NAME:
        result = load_name(l, &r);
        break;
    case RECORD_CLAIM:
        result = load_claim(l, &r);
        break;
    case RECORD_END:
        *ret_end = true;
        result = fl_reader_failed(&r) || fl_reader_left(&r) != 0 || !last_name_is_used(l)
                     ? FL_E_MALFORMED
                     : FL_OK;
        break;
    default:
        return FL_E_MALFORMED;
    }
    l->at += r.at;
    return result;
}

static int load_header(struct loader *l)
{
    struct fl_reader r = fl_reader_from(l->data + l->at, l->len - l->at);
    struct fl_machine *m = l->m;
    uint16_t version;

    if (fl_reader_u32(&r) != MAGIC)
        return FL_E_MALFORMED;
    version = fl_reader_u16(&r);
    if (fl_reader_failed(&r) || version == 0)
        return FL_E_MALFORMED;
    if (version > VERSION)
        return FL_E_VERSION;
    m->index = fl_reader_u64(&r);
    m->now_ms = fl_reader_u64(&r);
    m->history_hash = fl_reader_u64(&r);
    m->token = fl_reader_u64(&r);
    m->grants = fl_reader_u64(&r);
    m->next_seq = fl_reader_u64(&r);
    l->at += r.at;
    return fl_reader_failed(&r) || m->token > FL_TOKEN_MAX ? FL_E_MALFORMED : FL_OK;
}

static int compare_claims(const void *a, const void *b)
{
    const struct loaded_claim *x = a, *y = b;

    if (x->model.is_wait != y->model.is_wait)
        return x->model.is_wait ? 1 : -1;
    return (x->order > y->order) - (x->order < y->order);
}

/* Whether `claim` can stand beside what was linked before it. */
static bool fits(const struct fl_machine *m, const struct loaded_claim *claim)
{
    const struct lock *lock = fl_lock_at(m, claim->model.lock);
    const struct extra *extra = fl_lock_extra(m, lock);
    bool is_counted = claim->model.mode == FL_MODE_COUNTED;

    if (is_counted != (extra != NULL && extra->limit != 0))
        return false;
    if (fl_claim_find(m, m->sessions[claim->model.session], claim->model.request_id) != 0)
        return false;
    if (claim->model.is_wait || lock->holders == 0)
        return true;
    return fl_lock_mode(m, lock) == (enum fl_mode)claim->model.mode &&
           claim->model.mode != FL_MODE_EXCLUSIVE &&
           (!is_counted || extra->n_holders < extra->limit);
}

static int compare_dues(const void *a, const void *b)
{
    const struct due *x = FL_CONTAINER_OF(*(struct fl_heap_node *const *)a, struct due, node);
    const struct due *y = FL_CONTAINER_OF(*(struct fl_heap_node *const *)b, struct due, node);

    return (x->seq > y->seq) - (x->seq < y->seq);
}

/* What is due at one time happens in the order of arrival: on a replica that began from a snapshot
 * too. Two with one number are refused: their order would not be told by the bytes. */
static int order_dues(struct fl_machine *m)
{
    struct fl_heap ordered = FL_HEAP_INIT;
    size_t n = m->due.len;
    int result = FL_OK;

    if (n == 0 || FL_BUG(CORE_LOAD_FORGETS_ARRIVAL))
        return FL_OK;
    qsort(m->due.nodes, n, sizeof *m->due.nodes, compare_dues);
    for (size_t i = 0; i < n; i++) {
        if (i != 0 && compare_dues(&m->due.nodes[i - 1], &m->due.nodes[i]) == 0)
            result = FL_E_MALFORMED;
    }
    for (size_t i = 0; i < n; i++) {
        m->due.nodes[i]->place = 0;
        fl_heap_set(&ordered, m->due.nodes[i], m->due.nodes[i]->key);
    }
    fl_heap_deinit(&m->due);
    m->due = ordered;
    return result;
}

static int link_claims(struct loader *l)
{
    fl_names_restored(l->m);
    fl_handle_set_reserve(&l->m->by_request, l->n_claims);
    if (l->n_claims != 0)
        qsort(l->claims, l->n_claims, sizeof *l->claims, compare_claims);
    for (size_t i = 0; i < l->n_claims; i++) {
        const struct loaded_claim *claim = &l->claims[i];

        if (i != 0 && compare_claims(claim - 1, claim) == 0)
            return FL_E_MALFORMED; /* two with one token */
        if (!fits(l->m, claim))
            return FL_E_MALFORMED;
        fl_claim_restore(l->m, l->m->sessions[claim->model.session], &claim->model,
                         claim->deadline_ms, claim->order);
    }
    FL_LIST_EACH(link, &l->m->dead)
    {
        const struct session *session = FL_CONTAINER_OF(link, struct session, in_dead);

        if (session->holds == 0 && session->waits == 0)
            return FL_E_MALFORMED;
    }
    return order_dues(l->m);
}

static int load_all(struct loader *l)
{
    bool is_end = false;
    int r = fill(l);

    if (r == FL_OK)
        r = load_header(l);
    while (r == FL_OK && !is_end) {
        r = fill(l);
        if (r == FL_OK)
            r = load_record(l, &is_end);
    }
    return r == FL_OK ? link_claims(l) : r;
}

int fl_machine_load(const uint64_t hash_key[2], fl_machine_source read, void *ctx,
                    struct fl_machine **ret_machine)
{
    struct loader l = {.m = fl_machine_new(hash_key), .read = read, .ctx = ctx};
    int r;

    l.data = fl_xalloc(PIECE_BYTES + RECORD_MAX);
    r = load_all(&l);
    free(l.data);
    free(l.claims);
    if (r < 0) {
        fl_machine_free(l.m);
        return r;
    }
    *ret_machine = l.m;
    return FL_OK;
}
