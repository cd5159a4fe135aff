#include "door.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/error.h"

/* Nodes are dialled again after so long, and a dial without an answer is given up after that. */
#define DIAL_AGAIN_MS   100
#define DIAL_GIVE_UP_MS 2000

/* --- Links to nodes --- */

static void dial(void *ctx);

static void dial_again(struct door_link *link)
{
    struct place *place = &link->door->place;
    uint64_t wait_ms = DIAL_AGAIN_MS + timeline_between(place->time, 0, DIAL_AGAIN_MS * 3);

    link->dial.fire = dial;
    alarm_set(&link->dial, place_now_ms(place) + wait_ms);
}

static void link_is_lost(struct door_link *link)
{
    bool was_up = link->is_up;

    link->conn = NULL;
    link->is_up = false;
    dial_again(link);
    if (was_up)
        fl_gateway_link_down(link->door->gateway, link->number);
}

static void hear_node(void *ctx, struct conn *conn, const void *data, size_t len)
{
    struct door_link *link = ctx;

    if (conn != link->conn)
        return;
    if (data == NULL) {
        link_is_lost(link);
    } else if (!link->is_up) {
        link->is_up = true;
        alarm_set(&link->dial, UINT64_MAX);
        fl_gateway_link_up(link->door->gateway, link->number);
    } else if (fl_gateway_link_frame(link->door->gateway, link->number, data, len) < 0) {
        timeline_fail(link->door->place.time, "%s cannot read a frame", link->door->place.name);
    }
}

static void give_up(void *ctx)
{
    struct door_link *link = ctx;

    conn_close(link->conn, &link->door->place);
    link_is_lost(link);
}

static void dial(void *ctx)
{
    struct door_link *link = ctx;
    struct door *door = link->door;
    const struct door_target *target = &door->targets[link->target];

    if (!target->place->is_up) {
        dial_again(link);
        return;
    }
    link->conn = conn_new(door->net, &door->place, hear_node, link, target->place, target->hear,
                          target->ctx);
    conn_send(link->conn, &door->place, DOOR_HELLO, sizeof DOOR_HELLO);
    link->dial.fire = give_up;
    alarm_set(&link->dial, place_now_ms(&door->place) + DIAL_GIVE_UP_MS);
}

static void send_to_node(void *ctx, const void *data, size_t len)
{
    struct door_link *link = ctx;

    if (link->is_up && link->door->place.is_up)
        conn_send(link->conn, &link->door->place, data, len);
}

/* The router must not be called back from here: its loss is told by the next turn. */
static void reset_link(void *ctx, const char *why)
{
    struct door_link *link = ctx;

    (void)why;
    if (!link->is_up)
        return;
    link->dial.fire = give_up;
    alarm_set(&link->dial, place_now_ms(&link->door->place));
}

/* --- Life --- */

void door_init(struct door *door, struct net *net)
{
    door->net = net;
    door->place.time = net->time;
}

void door_start(struct door *door, const struct fl_gateway_config *config)
{
    char why[256];

    door->place.is_up = true;
    door->place.life++;
    door__loop_init(&door->loop, &door->place);
    FL_REQUIRE(fl_gateway_new(&door->loop, config, &door->gateway, why) == FL_OK);
    for (unsigned i = 0; i < door->n_targets; i++) {
        struct door_link *link = &door->links[i];
        struct fl_gateway_link config_of_link = {.node_id = door->targets[i].node_id,
                                                 .send = send_to_node,
                                                 .reset = reset_link,
                                                 .ctx = link};

        *link = (struct door_link){.door = door, .target = i};
        alarm_init(&link->dial, &door->place, dial, link);
        link->number = fl_gateway_add_link(door->gateway, &config_of_link);
        dial(link);
    }
}

void door_end(struct door *door, bool is_silent)
{
    if (door->gateway == NULL)
        return;
    door->place.is_up = false;
    door->place.life++;
    net_end_place(door->net, &door->place, is_silent);
    for (unsigned i = 0; i < door->n_targets; i++)
        alarm_set(&door->links[i].dial, UINT64_MAX);
    fl_gateway_free(door->gateway);
    door__loop_deinit(&door->loop);
    door->gateway = NULL;
}

void door_deinit(struct door *door)
{
    door_end(door, true);
}
