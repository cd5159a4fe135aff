/* Each check of engine_checks.h is seen to fail: a history that breaks it, told in a child, ends
 * that child. The same history without its last step does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine_checks.h"

#define NODES 3

struct history {
    struct timeline time;
    struct checks checks;
    struct disk disks[NODES + 1];
    struct checked_log logs[NODES + 1];
};

static void begin(struct history *h)
{
    struct fl_member_info member = {1, "n1", FL_MEMBER_VOTER};
    struct fl_entry *first = fl_engine_bootstrap_entry(&member, 1);

    checks_init(&h->checks, &h->time, first);
    for (unsigned i = 1; i <= NODES; i++) {
        h->logs[i].id = i;
        disk_init(&h->disks[i]);
        disk_push(&h->disks[i], first);
        checks_started(&h->checks, &h->logs[i], &h->disks[i]);
        (void)checks_applied(&h->checks, &h->logs[i], 1, 1);
    }
    fl_entry_unref(first);
}

static void append(struct history *h, unsigned id, uint64_t index, uint64_t term, const char *text)
{
    struct fl_entry *entry = fl_entry_new(FL_ENTRY_COMMAND, term, text, (uint32_t)strlen(text));
    struct fl_append run = {.index = index, .n = 1, .entries = &entry};

    checks_appended(&h->checks, &h->logs[id], &run);
    fl_entry_unref(entry);
}

static void apply(struct history *h, unsigned id, uint64_t index, uint64_t term)
{
    (void)checks_applied(&h->checks, &h->logs[id], index, term);
}

static void install(struct history *h, unsigned id, uint64_t index, struct checked_state state)
{
    struct fl_snapshot *snapshot =
        fl_snapshot_new(index, 2, 1, h->disks[id].log[0]->data, h->disks[id].log[0]->len);

    snapshot->content = fl_xmemdup(&state, sizeof state);
    snapshot->free_content = free;
    checks_installed(&h->checks, &h->logs[id], snapshot);
    fl_snapshot_unref(snapshot);
}

/* --- Histories; the last step is done when `is_broken`. --- */

static void log_matching(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    append(h, 1, 3, 3, "b");
    append(h, 2, 2, 1, "c");
    if (is_broken)
        append(h, 2, 3, 3, "b"); /* the same entry on top of another log */
}

static void applied_is_kept(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    apply(h, 1, 2, 2);
    if (is_broken)
        append(h, 1, 2, 3, "b");
}

static void states_are_equal(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    append(h, 2, 2, 3, "b");
    apply(h, 1, 2, 2);
    if (is_broken)
        apply(h, 2, 2, 3);
}

static void leader_is_complete(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    append(h, 1, 3, 2, "b");
    apply(h, 1, 2, 2);
    append(h, 2, 2, 1, "c");
    append(h, 2, 3, 3, "d"); /* long enough, and not the same */
    checks_leads(&h->checks, &h->logs[1], 3);
    checks_leads(&h->checks, &h->logs[2], 2); /* of a term that is over */
    if (is_broken)
        checks_leads(&h->checks, &h->logs[2], 4);
}

static void one_leader_per_term(struct history *h, bool is_broken)
{
    checks_leads(&h->checks, &h->logs[1], 2);
    checks_leads(&h->checks, &h->logs[1], 2);
    checks_leads(&h->checks, &h->logs[2], 3);
    if (is_broken)
        checks_leads(&h->checks, &h->logs[2], 2);
}

static void one_vote_per_term(struct history *h, bool is_broken)
{
    h->disks[1].term = 4;
    h->disks[1].vote = 2;
    checks_voted(&h->checks, 1, &h->disks[1], 4, 2);
    checks_voted(&h->checks, 1, &h->disks[1], 5, 3);
    if (is_broken)
        checks_voted(&h->checks, 1, &h->disks[1], 4, 3);
}

static void snapshot_carries_the_state(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    apply(h, 1, 2, 2);
    install(h, 2, 2, (struct checked_state){2, h->logs[1].chains[2]});
    if (is_broken)
        install(h, 3, 2, (struct checked_state){2, h->logs[1].chains[1]});
}

static void snapshot_is_committed(struct history *h, bool is_broken)
{
    append(h, 1, 2, 2, "a");
    if (is_broken)
        install(h, 2, 2, (struct checked_state){2, h->logs[1].chains[2]});
}

static int run(void (*history)(struct history *h, bool is_broken), bool is_broken)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        struct history *h = fl_xcalloc(1, sizeof *h);

        begin(h);
        history(h, is_broken);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

int main(void)
{
    static void (*const histories[])(struct history *, bool) = {
        log_matching,        applied_is_kept,   states_are_equal,           leader_is_complete,
        one_leader_per_term, one_vote_per_term, snapshot_carries_the_state, snapshot_is_committed,
    };
    int failed = 0;

    for (unsigned i = 0; i < sizeof histories / sizeof histories[0]; i++) {
        int kept = run(histories[i], false), broken = run(histories[i], true);

        if (kept == 0 && broken == BROKEN_STATUS)
            continue;
        printf("history %u: status %d, and %d when it is broken\n", i, kept, broken);
        failed++;
    }
    return failed != 0;
}
