#include "core/internal.h"

#include "base/assert.h"

/* Where a claim keeps its neighbours in that ring. */
static fl_handle *prev_of(struct claim *claim, enum ring ring)
{
    return ring == IN_SESSION ? &claim->session_prev : &claim->lock_prev;
}

static fl_handle *next_of(struct claim *claim, enum ring ring)
{
    return ring == IN_SESSION ? &claim->session_next : &claim->lock_next;
}

void fl_ring_append(const struct fl_machine *m, enum ring ring, fl_handle *head, fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle), *first, *last;

    if (*head == 0) {
        *head = *prev_of(claim, ring) = *next_of(claim, ring) = handle;
        return;
    }
    first = fl_claim_at(m, *head);
    last = fl_claim_at(m, *prev_of(first, ring));
    *prev_of(claim, ring) = *prev_of(first, ring);
    *next_of(claim, ring) = *head;
    *next_of(last, ring) = handle;
    *prev_of(first, ring) = handle;
}

void fl_ring_remove(const struct fl_machine *m, enum ring ring, fl_handle *head, fl_handle handle)
{
    struct claim *claim = fl_claim_at(m, handle);
    fl_handle prev = *prev_of(claim, ring), next = *next_of(claim, ring);

    FL_REQUIRE(*head != 0);
    if (next == handle) {
        *head = 0;
        return;
    }
    *next_of(fl_claim_at(m, prev), ring) = next;
    *prev_of(fl_claim_at(m, next), ring) = prev;
    if (*head == handle)
        *head = next;
}

fl_handle fl_ring_next(const struct fl_machine *m, enum ring ring, fl_handle head, fl_handle handle)
{
    fl_handle next = *next_of(fl_claim_at(m, handle), ring);

    return next != head ? next : 0;
}
