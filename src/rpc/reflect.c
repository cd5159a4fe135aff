/* Server reflection, v1 and v1alpha (their bytes are the same): which services there are, and the
 * descriptors that tools build their messages from.
 * https://github.com/grpc/grpc/blob/master/doc/server-reflection.md */
#include <string.h>

#include "rpc/server_parts.h"
#include "rpc/wire.h"

/* Field numbers of ServerReflectionRequest and ServerReflectionResponse. */
enum { ASK_FILE = 3, ASK_SYMBOL = 4, ASK_EXTENSION = 5, ASK_EXTENSIONS = 6, ASK_SERVICES = 7 };
enum { TELL_REQUEST = 2, TELL_FILES = 4, TELL_SERVICES = 6, TELL_ERROR = 7 };
/* Of the descriptors. */
enum { FILE_PACKAGE = 2, FILE_DEPENDENCY = 3, FILE_MESSAGE = 4, FILE_ENUM = 5, FILE_SERVICE = 6 };
enum { ANY_NAME = 1, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4, SERVICE_METHOD = 2 };

static struct fl_str descriptor_of(const struct fl_rpc_file *file)
{
    return (struct fl_str){(const char *)file->descriptor, file->len};
}

/* What is left of `symbol` after `name`: empty when they are equal; false when it does not begin
 * so. */
static bool strip_name(struct fl_str symbol, struct fl_str name, struct fl_str *ret_rest)
{
    if (!fl_str_has_prefix(symbol, name))
        return false;
    if (symbol.len == name.len) {
        *ret_rest = (struct fl_str){symbol.data + symbol.len, 0};
        return true;
    }
    if (name.len != 0 && symbol.data[name.len] != '.')
        return false;
    *ret_rest = (struct fl_str){symbol.data + name.len + (name.len != 0), 0};
    ret_rest->len = symbol.len - (size_t)(ret_rest->data - symbol.data);
    return true;
}

/* Whether the descriptor `d`, or something within it under one of two field numbers, is `symbol`.
 */
static bool has_symbol(struct fl_str d, struct fl_str symbol, unsigned inner, unsigned inner_too,
                       unsigned depth)
{
    struct fl_reader r = fl_reader_from(d.data, d.len);
    struct fl_wire_field f;
    struct fl_str rest;

    if (depth == 0 || !strip_name(symbol, fl_wire_find(d, ANY_NAME), &rest))
        return false;
    if (rest.len == 0)
        return true;
    while (fl_wire_next(&r, &f)) {
        if ((f.number == inner || f.number == inner_too) &&
            has_symbol(f.bytes, rest, MESSAGE_NESTED, MESSAGE_ENUM, depth - 1))
            return true;
    }
    return false;
}

static bool file_has_symbol(const struct fl_rpc_file *file, struct fl_str symbol)
{
    struct fl_str d = descriptor_of(file), rest;
    struct fl_reader r = fl_reader_from(d.data, d.len);
    struct fl_wire_field f;

    if (!strip_name(symbol, fl_wire_find(d, FILE_PACKAGE), &rest) || rest.len == 0)
        return false;
    while (fl_wire_next(&r, &f)) {
        bool is_service = f.number == FILE_SERVICE;

        if ((is_service || f.number == FILE_MESSAGE || f.number == FILE_ENUM) &&
            has_symbol(f.bytes, rest, is_service ? SERVICE_METHOD : MESSAGE_NESTED, MESSAGE_ENUM,
                       16))
            return true;
    }
    return false;
}

static const struct fl_rpc_file *find_file(const struct fl_rpc_server *s, unsigned by,
                                           struct fl_str what)
{
    for (size_t i = 0; i < s->config.n_files; i++) {
        const struct fl_rpc_file *file = &s->config.files[i];

        if (by == ASK_FILE ? fl_str_equal(fl_str_from(file->name), what)
                           : file_has_symbol(file, what))
            return file;
    }
    return NULL;
}

/* The file, then what it imports, as far as it is ours to give. */
static void put_files(const struct fl_rpc_server *s, struct fl_buf *buf,
                      const struct fl_rpc_file *file, unsigned depth)
{
    struct fl_reader r = fl_reader_from(file->descriptor, file->len);
    struct fl_wire_field f;

    fl_wire_put_bytes(buf, 1, descriptor_of(file));
    while (depth != 0 && fl_wire_next(&r, &f)) {
        const struct fl_rpc_file *import =
            f.number == FILE_DEPENDENCY ? find_file(s, ASK_FILE, f.bytes) : NULL;

        if (import != NULL)
            put_files(s, buf, import, depth - 1);
    }
}

static void put_error(struct fl_buf *buf, enum fl_rpc_code code, const char *text)
{
    struct fl_buf error = FL_BUF_INIT;

    fl_wire_put_varint(&error, 1, code);
    fl_wire_put_bytes(&error, 2, fl_str_from(text));
    fl_wire_put_bytes(buf, TELL_ERROR, (struct fl_str){(char *)error.data, error.len});
    fl_buf_deinit(&error);
}

static void put_found(const struct fl_rpc_server *s, struct fl_buf *buf, unsigned by,
                      struct fl_str what)
{
    const struct fl_rpc_file *file = find_file(s, by, what);
    struct fl_buf files = FL_BUF_INIT;

    if (file == NULL) {
        put_error(buf, FL_RPC_NOT_FOUND, by == ASK_FILE ? "no such file" : "no such symbol");
        return;
    }
    put_files(s, &files, file, 8);
    fl_wire_put_bytes(buf, TELL_FILES, (struct fl_str){(char *)files.data, files.len});
    fl_buf_deinit(&files);
}

/* "/package.Service/Method": the services, each once, since methods are sorted by path. */
static void put_services(const struct fl_rpc_server *s, struct fl_buf *buf)
{
    struct fl_buf list = FL_BUF_INIT, one = FL_BUF_INIT;
    struct fl_str last = {NULL, 0};

    for (size_t i = 0; i < s->n_methods; i++) {
        const char *path = s->methods[i]->path + 1;
        struct fl_str name = {path, strcspn(path, "/")};

        if (fl_str_equal(name, last))
            continue;
        last = name;
        fl_buf_clear(&one);
        fl_wire_put_bytes(&one, 1, name);
        fl_wire_put_bytes(&list, 1, (struct fl_str){(char *)one.data, one.len});
    }
    fl_wire_put_bytes(buf, TELL_SERVICES, (struct fl_str){(char *)list.data, list.len});
    fl_buf_deinit(&list);
    fl_buf_deinit(&one);
}

static void put_answer(const struct fl_rpc_server *s, struct fl_buf *buf, struct fl_str request)
{
    struct fl_reader r = fl_reader_from(request.data, request.len);
    struct fl_wire_field f = {0}, asked = {0};

    while (fl_wire_next(&r, &f)) {
        if (f.number >= ASK_FILE && f.number <= ASK_SERVICES)
            asked = f;
    }
    if (asked.number == ASK_SERVICES)
        put_services(s, buf);
    else if (asked.number == ASK_FILE || asked.number == ASK_SYMBOL)
        put_found(s, buf, asked.number, asked.bytes);
    else if (asked.number == ASK_EXTENSION || asked.number == ASK_EXTENSIONS)
        put_error(buf, FL_RPC_NOT_FOUND, "this server has no extensions");
    else
        put_error(buf, FL_RPC_INVALID_ARGUMENT, "the request asks for nothing");
}

static void on_message(struct fl_rpc_call *call, const uint8_t *data, size_t len)
{
    struct fl_str request = {(const char *)data, len};
    struct fl_buf buf = FL_BUF_INIT;
    uint8_t *message;

    fl_wire_put_bytes(&buf, TELL_REQUEST, request);
    put_answer(fl_rpc__call_server(call), &buf, request);
    message = fl_rpc_message_new(buf.len);
    if (message != NULL)
        memcpy(message, buf.data, buf.len);
    fl_rpc_call_send(call, message, buf.len);
    fl_buf_deinit(&buf);
}

static void on_half_close(struct fl_rpc_call *call)
{
    fl_rpc__call_finish_plain(call, FL_RPC_OK, NULL);
}

static const struct fl_rpc_handler handler = {
    .on_message = on_message,
    .on_half_close = on_half_close,
};

const struct fl_rpc_method fl_rpc__reflect_methods[2] = {
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", true, &handler, NULL},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", true, &handler, NULL},
};
