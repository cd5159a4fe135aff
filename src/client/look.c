/* Describe and List. */
#include <stdlib.h>

#include "client/client.h"
#include "client/unpack.h"
#include "client/why.h"
#include "lock.pb-c.h"

#define PATH "/fencelock.v1.LockService/"

static void copy_holder(struct fl_holder *to, const Fencelock__V1__Holder *from)
{
    fl_why_copy_text(to->client, sizeof to->client, from->client);
    fl_why_copy_text(to->session_id, sizeof to->session_id, from->session_id);
    to->token = from->token;
    to->held_for_ms = from->held_for_ms;
    to->lease_left_ms = from->lease_left_ms;
    to->mode = (int)from->mode;
}

static void copy_waiter(struct fl_waiter *to, const Fencelock__V1__DescribeResponse__Waiter *from)
{
    fl_why_copy_text(to->client, sizeof to->client, from->client);
    to->waiting_for_ms = from->waiting_for_ms;
    to->mode = (int)from->mode;
}

static struct fl_description *describe_from(const Fencelock__V1__DescribeResponse *response)
{
    struct fl_description *d = calloc(1, sizeof *d);

    if (d == NULL)
        return NULL;
    d->is_held = response->held;
    d->mode = (int)response->mode;
    d->limit = response->limit;
    d->closed_for_ms = response->closed_for_ms;
    d->log_index = response->log_index;
    d->waiter_count = response->waiter_count;
    d->holders = calloc(response->n_holders + 1, sizeof *d->holders);
    d->waiters = calloc(response->n_waiters + 1, sizeof *d->waiters);
    if (d->holders == NULL || d->waiters == NULL) {
        fl_description_free(d);
        return NULL;
    }
    for (; d->n_holders < response->n_holders; d->n_holders++)
        copy_holder(&d->holders[d->n_holders], response->holders[d->n_holders]);
    for (; d->n_waiters < response->n_waiters; d->n_waiters++)
        copy_waiter(&d->waiters[d->n_waiters], response->waiters[d->n_waiters]);
    return d;
}

int fl_describe(struct fl_client *client, const char *name, bool stale_ok, uint32_t waiters_max,
                struct fl_description **ret, struct fl_why *why)
{
    Fencelock__V1__DescribeRequest request = FENCELOCK__V1__DESCRIBE_REQUEST__INIT;
    Fencelock__V1__DescribeResponse *response;
    uint8_t *data;
    size_t len;
    int r;

    request.name = (char *)name;
    request.stale_ok = stale_ok;
    request.has_waiters_max_case = FENCELOCK__V1__DESCRIBE_REQUEST__HAS_WAITERS_MAX_WAITERS_MAX;
    request.waiters_max = waiters_max;
    r = fl_call__unary(client, PATH "Describe", true, &request.base, &data, &len, why);
    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__describe_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    *ret = describe_from(response);
    fl_unpacked_free(response);
    return *ret != NULL ? FL_OK : fl_why_set_nomem(why);
}

void fl_description_free(struct fl_description *description)
{
    if (description == NULL)
        return;
    free(description->holders);
    free(description->waiters);
    free(description);
}

/* The strings of a listing borrow from the response, which lives as long. */
struct listing_box {
    struct fl_listing listing;
    Fencelock__V1__ListResponse *response;
};

static struct fl_listing *listing_from(Fencelock__V1__ListResponse *response)
{
    struct listing_box *box = calloc(1, sizeof *box);
    struct fl_listing *listing = box != NULL ? &box->listing : NULL;

    if (box == NULL)
        return NULL;
    listing->items = calloc(response->n_items + 1, sizeof *listing->items);
    if (listing->items == NULL) {
        free(box);
        return NULL;
    }
    box->response = response;
    listing->next_page = response->next_page_token;
    listing->log_index = response->log_index;
    listing->n_items = response->n_items;
    for (size_t i = 0; i < response->n_items; i++) {
        const Fencelock__V1__ListResponse__Item *item = response->items[i];

        listing->items[i] = (struct fl_list_item){.name = item->name,
                                                  .mode = (int)item->mode,
                                                  .limit = item->limit,
                                                  .holders = item->holders,
                                                  .waiters = item->waiters,
                                                  .client = item->client,
                                                  .token = item->token,
                                                  .held_for_ms = item->held_for_ms};
    }
    return listing;
}

int fl_list_names(struct fl_client *client, const char *prefix, const char *page,
                  uint32_t page_size, struct fl_listing **ret, struct fl_why *why)
{
    Fencelock__V1__ListRequest request = FENCELOCK__V1__LIST_REQUEST__INIT;
    Fencelock__V1__ListResponse *response;
    uint8_t *data;
    size_t len;
    int r;

    request.prefix = (char *)(prefix != NULL ? prefix : "");
    request.page_token = (char *)(page != NULL ? page : "");
    request.page_size = page_size;
    r = fl_call__unary(client, PATH "List", true, &request.base, &data, &len, why);
    if (r < 0)
        return r;
    response = fl_unpack(&fencelock__v1__list_response__descriptor, data, len, &r, why);
    free(data);
    if (response == NULL)
        return r;
    *ret = listing_from(response);
    if (*ret != NULL)
        return FL_OK;
    fl_unpacked_free(response);
    return fl_why_set_nomem(why);
}

void fl_listing_free(struct fl_listing *listing)
{
    struct listing_box *box = (struct listing_box *)listing;

    if (box == NULL)
        return;
    fl_unpacked_free(box->response);
    free(listing->items);
    free(box);
}
