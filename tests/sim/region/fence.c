#include "fence.h"

static bool is_stale(struct fence *fence, unsigned resource, fl_token token)
{
    bool is_below = token < fence->resources[resource].seen;

    fence->refused += is_below;
    return is_below;
}

bool fence_claim(struct fence *fence, unsigned resource, fl_token token)
{
    if (is_stale(fence, resource, token))
        return false;
    fence->claims++;
    fence->resources[resource].seen = token;
    return true;
}

bool fence_write(struct fence *fence, unsigned resource, fl_token token)
{
    if (!fence_claim(fence, resource, token))
        return false;
    fence->writes++;
    if (token < fence->resources[resource].written)
        timeline_fail(fence->time, "F2: token %llu writes after %llu", (unsigned long long)token,
                      (unsigned long long)fence->resources[resource].written);
    fence->resources[resource].written = token;
    return true;
}
