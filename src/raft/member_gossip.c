/* What members tell each other beside consensus, twice a second: whether their disk is full, and
 * the newest formats that they know. Lost messages do no harm: the next one says the same.
 *
 * A leader grants only while a majority can write without touching the space that is reserved for
 * releases; one whose own disk is full hands over to a voter that has space. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "raft/member_parts.h"

#define GOSSIP_EVERY_MS 500
/* Who was not heard of for so long cannot be counted on. */
#define NEWS_MAX_MS 3000
/* Between two attempts to hand leadership to somebody with space. */
#define HAND_OVER_EVERY_MS 5000
/* The first byte: no version of raft/message.h. */
#define GOSSIP_BYTE 'G'
#define FULL_FLAG   1u

static struct fl_member_news *news_of(struct fl_member *m, uint64_t id)
{
    struct fl_member_news *free = NULL, *oldest = &m->news[0];

    for (size_t i = 0; i < FL_ARRAY_LEN(m->news); i++) {
        struct fl_member_news *news = &m->news[i];

        if (news->id == id)
            return news;
        if (news->id == 0 && free == NULL)
            free = news;
        if (news->heard_ms < oldest->heard_ms)
            oldest = news;
    }
    free = free != NULL ? free : oldest; /* there are more places than members */
    *free = (struct fl_member_news){.id = id};
    return free;
}

void fl_member__gossip_note_level(struct fl_member *m, uint64_t id, uint16_t level)
{
    struct fl_member_news *news = news_of(m, id);

    news->level = level;
    news->heard_ms = fl_loop_now_ms(m->loop);
}

bool fl_member__gossip_is(const uint8_t *data, size_t len)
{
    return len > 0 && data[0] == GOSSIP_BYTE;
}

/* A later release may say more at the end. */
int fl_member__gossip_receive(struct fl_member *m, uint64_t from, const uint8_t *data, size_t len)
{
    struct fl_reader r = fl_reader_from(data, len < 4 ? 0 : len - 4);
    struct fl_reader sum = fl_reader_from(data + (len < 4 ? 0 : len - 4), len < 4 ? 0 : 4);
    struct fl_member_news *news;
    uint16_t level;
    uint8_t flags;

    fl_reader_u8(&r);
    level = fl_reader_u16(&r);
    flags = fl_reader_u8(&r);
    if (fl_reader_failed(&r) || fl_reader_u32(&sum) != fl_crc32c(0, data, len - 4))
        return FL_E_CORRUPT;
    news = news_of(m, from);
    news->level = level;
    news->is_full = (flags & FULL_FLAG) != 0;
    news->heard_ms = fl_loop_now_ms(m->loop);
    return FL_OK;
}

static void tell(struct fl_member *m, const struct fl_member_info *members, unsigned n)
{
    if (m->transport == NULL)
        return; /* it stops */
    fl_buf_clear(&m->scratch);
    fl_buf_put_u8(&m->scratch, GOSSIP_BYTE);
    fl_buf_put_u16(&m->scratch, fl_format_level);
    fl_buf_put_u8(&m->scratch, fl_store_is_full(m->store) ? FULL_FLAG : 0);
    fl_buf_put_u32(&m->scratch, fl_crc32c(0, m->scratch.data, m->scratch.len));
    for (unsigned i = 0; i < n; i++) {
        if (members[i].id != m->node_id)
            fl_transport_send(m->transport, members[i].id, m->scratch.data, m->scratch.len);
    }
}

/* --- What a leader makes of it --- */

/* Can write, and is there. A leader that began just now has not heard of anybody yet. */
static bool is_fit(struct fl_member *m, uint64_t id, uint64_t now_ms)
{
    const struct fl_member_news *news;

    if (id == m->node_id)
        return !fl_store_is_full(m->store);
    news = news_of(m, id);
    if (news->heard_ms == 0)
        return now_ms < m->leading_since_ms + NEWS_MAX_MS;
    return !news->is_full && now_ms < news->heard_ms + NEWS_MAX_MS;
}

static uint16_t level_of(struct fl_member *m, uint64_t id)
{
    const struct fl_member_news *news;

    if (id == m->node_id)
        return fl_format_level;
    news = news_of(m, id);
    return news->level != 0 ? news->level : 1; /* not heard of: as old as can be */
}

static void hand_over(struct fl_member *m, uint64_t to, uint64_t now_ms)
{
    if (to == 0 || now_ms < m->hand_over_ms)
        return;
    m->hand_over_ms = now_ms + HAND_OVER_EVERY_MS;
    if (fl_engine_transfer(m->engine, now_ms, to) == FL_OK)
        fl_warn("member", "the disk is full: leadership goes to node %llu, which has space",
                (unsigned long long)to);
}

static void judge(struct fl_member *m, const struct fl_member_info *members, unsigned n,
                  uint64_t now_ms)
{
    unsigned voters = 0, fit = 0;
    uint64_t fit_id = 0;
    uint16_t level = fl_format_level;
    bool is_full = fl_store_is_full(m->store), is_refusing;

    for (unsigned i = 0; i < n; i++) {
        uint16_t theirs = level_of(m, members[i].id);

        level = theirs < level ? theirs : level;
        if (members[i].role != FL_MEMBER_VOTER)
            continue;
        voters++;
        if (!is_fit(m, members[i].id, now_ms))
            continue;
        fit++;
        if (members[i].id != m->node_id)
            fit_id = members[i].id;
    }
    is_refusing = fit <= voters / 2;
    if (is_refusing != m->is_refusing)
        fl_warn("member", "%s",
                is_refusing ? "no majority has space on its disk, or is there: nothing is granted "
                              "until it does; releases go on"
                            : "a majority has space on its disk: grants go on");
    m->is_refusing = is_refusing;
    fl_node_set_disk_full(m->node, is_refusing || is_full);
    if (level != m->level)
        fl_info("member", "all members know format level %u: what it brings is written from now on",
                level);
    m->level = level;
    fl_node_set_level(m->node, level);
    if (is_full && fit > voters / 2)
        hand_over(m, fit_id, now_ms);
}

void fl_member__gossip_step(struct fl_member *m, const struct fl_member_info *members, unsigned n,
                            uint64_t now_ms)
{
    bool is_full = fl_store_is_full(m->store);

    if (now_ms >= m->gossip_due_ms || is_full != m->was_full) {
        m->gossip_due_ms = now_ms + GOSSIP_EVERY_MS;
        m->was_full = is_full;
        tell(m, members, n);
    }
    if (fl_engine_role(m->engine) == FL_ROLE_LEADER && !m->is_stopping)
        judge(m, members, n, now_ms);
    else
        m->is_refusing = false;
}
