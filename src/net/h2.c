#include "net/h2.h"

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "net/h2_memory.h"

static int make_options(bool is_server, const struct fl_h2_limits *limits,
                        nghttp2_option **ret_option)
{
    nghttp2_option *option;

    if (nghttp2_option_new(&option) != 0)
        return FL_E_NOMEM;
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_stream_reset_rate_limit(option, limits->reset_burst, limits->reset_rate);
    nghttp2_option_set_max_continuations(option, limits->continuations_max);
    nghttp2_option_set_max_outbound_ack(option, limits->outbound_ack_max);
    nghttp2_option_set_max_settings(option, limits->settings_max);
    if (!is_server) {
        /* Before the server's SETTINGS it is taken to be 100: calls would queue for nothing. */
        nghttp2_option_set_peer_max_concurrent_streams(option, 100000);
        nghttp2_option_set_max_reserved_remote_streams(option, 0);
    }
    *ret_option = option;
    return FL_OK;
}

static int submit_settings(nghttp2_session *session, bool is_server,
                           const struct fl_h2_limits *limits)
{
    nghttp2_settings_entry entries[6];
    size_t n = 0;

    entries[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE,
                                            (uint32_t)limits->stream_window};
    entries[n++] =
        (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, limits->header_bytes_max};
    entries[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1};
    if (is_server)
        entries[n++] =
            (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, limits->streams_max};
    else
        entries[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    if (nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, entries, n) != 0 ||
        nghttp2_session_set_local_window_size(session, NGHTTP2_FLAG_NONE, 0, limits->conn_window) !=
            0)
        return FL_E_NOMEM;
    return FL_OK;
}

int fl_h2_session_new(bool is_server, const struct fl_h2_limits *limits,
                      const nghttp2_session_callbacks *callbacks, void *ctx,
                      nghttp2_session **ret_session)
{
    struct fl_h2_memory *memory;
    nghttp2_option *option;
    nghttp2_session *session;
    nghttp2_mem *mem;
    int r = make_options(is_server, limits, &option);

    if (r < 0)
        return r;
    r = FL_E_NOMEM;
    memory = fl_h2_memory_new();
    if (memory == NULL)
        goto out;
    mem = fl_h2_memory_functions(memory);
    if ((is_server ? nghttp2_session_server_new3(&session, callbacks, ctx, option, mem)
                   : nghttp2_session_client_new3(&session, callbacks, ctx, option, mem)) == 0)
        r = submit_settings(session, is_server, limits);
out:
    nghttp2_option_del(option);
    if (r < 0)
        fl_h2_memory_free(memory);
    else
        *ret_session = session;
    return r;
}

void fl_h2_session_free(nghttp2_session *session)
{
    if (session != NULL)
        fl_h2_memory_free(fl_h2_memory_of(session)); /* the session is a block of it */
}

int fl_h2_pull(nghttp2_session *session, struct fl_conn *conn, size_t socket_out_max)
{
    while (fl_conn_queued(conn) < socket_out_max) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(session, &data);
        int r;

        if (n == 0)
            break;
        if (n < 0)
            return n == NGHTTP2_ERR_NOMEM ? FL_E_NOMEM : FL_E_PROTOCOL;
        r = fl_conn_write(conn, data, (size_t)n);
        if (r < 0)
            return r;
    }
    return FL_OK;
}

void fl_h2_set_urgency(nghttp2_session *session, int32_t stream_id, unsigned urgency)
{
    const nghttp2_extpri priority = {.urgency = urgency, .inc = 1};

    (void)nghttp2_session_change_extpri_stream_priority(session, stream_id, &priority, 1);
}

nghttp2_nv fl_h2_header(const char *name, const char *value, size_t value_len)
{
    return (nghttp2_nv){
        .name = (uint8_t *)(uintptr_t)name,
        .value = (uint8_t *)(uintptr_t)value,
        .namelen = strlen(name),
        .valuelen = value_len,
        .flags = NGHTTP2_NV_FLAG_NONE,
    };
}
