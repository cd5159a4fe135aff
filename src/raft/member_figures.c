/* What is counted here, put where another thread finds it: a place for one, that is filled anew and
 * emptied by exchanging pointers. */
#include <stdlib.h>

#include "base/alloc.h"
#include "raft/member_parts.h"

static void put(struct fl_member *m, struct fl_figures *figures)
{
    free(__atomic_exchange_n(&m->figures, figures, __ATOMIC_ACQ_REL));
}

struct fl_figures *fl_member_take_figures(struct fl_member *m)
{
    return __atomic_exchange_n(&m->figures, NULL, __ATOMIC_ACQ_REL);
}

void fl_member__publish_figures(struct fl_member *m, const struct fl_status_info *info,
                                uint64_t now_ms)
{
    struct fl_figures *figures = fl_xcalloc(1, sizeof *figures);

    fl_meter_tick(m->meter, now_ms);
    fl_meter_figures(m->meter, figures);
    figures->status = *info;
    figures->status.version = (struct fl_str){NULL, 0};
    for (unsigned i = 0; i < info->n_members; i++)
        figures->status.members[i].address = (struct fl_str){NULL, 0};
    figures->status.token = fl_machine_token(fl_node_machine(m->node));
    fl_machine_stats(fl_node_machine(m->node), &figures->status.stats);
    figures->is_disk_full = fl_store_is_full(m->store);
    figures->commit = m->commit_time;
    fl_store_written(m->store, &figures->write, &figures->written_bytes);
    put(m, figures);
}

void fl_member__drop_figures(struct fl_member *m)
{
    put(m, NULL);
    fl_meter_free(m->meter);
}
