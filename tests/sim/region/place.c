#include "place.h"

uint64_t place_now_ms(const struct place *place)
{
    return place->offset_ms + place->time->now_us * place->rate_ppm / 1000000 / 1000;
}

uint64_t place_when_us(const struct place *place, uint64_t own_ms)
{
    uint64_t at_us;

    if (own_ms <= place_now_ms(place))
        return place->time->now_us;
    at_us = (own_ms - place->offset_ms) * 1000 * 1000000 / place->rate_ppm;
    while (place->offset_ms + at_us * place->rate_ppm / 1000000 / 1000 < own_ms)
        at_us++;
    return at_us;
}

void alarm_init(struct alarm *alarm, struct place *place, void (*fire)(void *ctx), void *ctx)
{
    *alarm = (struct alarm){
        .place = place, .fire = fire, .ctx = ctx, .at_us = UINT64_MAX, .next_us = UINT64_MAX};
}

static void come_back(struct alarm *alarm, uint64_t at_us);

static void on_alarm(void *ctx, uint64_t at_us, const void *data, size_t len)
{
    struct alarm *alarm = ctx;
    struct place *place = alarm->place;

    (void)data;
    (void)len;
    if (at_us != alarm->next_us) /* an earlier one took its place */
        return;
    alarm->next_us = UINT64_MAX;
    if (alarm->at_us == UINT64_MAX)
        return;
    if (alarm->at_us > place->time->now_us) {
        come_back(alarm, alarm->at_us);
    } else if (place_is_paused(place)) {
        come_back(alarm, place->paused_until_us);
    } else {
        alarm->at_us = UINT64_MAX;
        alarm->fire(alarm->ctx);
    }
}

static void come_back(struct alarm *alarm, uint64_t at_us)
{
    alarm->next_us = at_us;
    timeline_at(alarm->place->time, at_us, on_alarm, alarm, at_us, NULL, 0);
}

void alarm_set(struct alarm *alarm, uint64_t own_ms)
{
    if (own_ms == UINT64_MAX) {
        alarm->at_us = UINT64_MAX;
        return;
    }
    alarm->at_us = place_when_us(alarm->place, own_ms);
    if (alarm->at_us < alarm->next_us)
        come_back(alarm, alarm->at_us);
}
