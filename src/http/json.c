#include "http/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/buf.h"

/* JavaScript's numbers are exact up to here. */
#define EXACT_MAX ((UINT64_C(1) << 53) - 1)
/* Messages of ours nest three deep. */
#define DEPTH_MAX 8

json_t *fl_json_text(const char *text)
{
    char escaped[1024];
    json_t *string = json_string(text);

    if (string == NULL)
        string = json_string(fl_str_escape(fl_str_from(text), escaped, sizeof escaped));
    FL_REQUIRE(string != NULL);
    return string;
}

json_t *fl_json_number(uint64_t value)
{
    char digits[24];

    if (value <= EXACT_MAX)
        return json_integer((json_int_t)value);
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    return json_string(digits);
}

/* --- Texts to objects --- */

json_t *fl_json_parse(struct fl_str text, struct fl_outcome *outcome)
{
    json_error_t error;
    json_t *object;

    if (text.len == 0)
        return json_object();
    object = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &error);
    if (object != NULL && json_is_object(object))
        return object;
    fl_outcome_set(outcome, FL_REASON_BAD_MESSAGE);
    if (object == NULL)
        snprintf(outcome->text, sizeof outcome->text,
                 "the body is not JSON: line %d, column %d: %.160s", error.line, error.column,
                 error.text);
    else
        snprintf(outcome->text, sizeof outcome->text, "the body must be a JSON object: {...}");
    outcome->status.message = outcome->text;
    json_decref(object);
    return NULL;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: a % without two digits behind it. */
static bool decode(struct fl_str text, struct fl_buf *out)
{
    fl_buf_clear(out);
    for (size_t i = 0; i < text.len; i++) {
        int high, low;

        if (text.data[i] != '%') {
            fl_buf_put_u8(out, text.data[i] == '+' ? ' ' : (uint8_t)text.data[i]);
            continue;
        }
        if (i + 2 >= text.len)
            return false;
        high = hex_digit(text.data[i + 1]);
        low = hex_digit(text.data[i + 2]);
        if (high < 0 || low < 0)
            return false;
        fl_buf_put_u8(out, (uint8_t)(high << 4 | low));
        i += 2;
    }
    return true;
}

static struct fl_str cut(struct fl_str *rest, char at)
{
    const char *end = rest->len != 0 ? memchr(rest->data, at, rest->len) : NULL;
    struct fl_str part = {rest->data, end != NULL ? (size_t)(end - rest->data) : rest->len};

    if (end != NULL)
        *rest = (struct fl_str){end + 1, rest->len - part.len - 1};
    else
        *rest = (struct fl_str){NULL, 0};
    return part;
}

/* One "a=b"; what is wrong with it, or NULL. */
static const char *add_pair(json_t *object, struct fl_str pair, struct fl_buf *buf, char *key,
                            size_t key_size)
{
    struct fl_str value = pair, name = cut(&value, '=');
    json_t *string;

    snprintf(key, key_size, "%.*s", FL_STR_ARGS(name));
    if (!decode(value, buf))
        return "has a % that is not followed by two hexadecimal digits";
    string = json_stringn(buf->len != 0 ? (const char *)buf->data : "", buf->len);
    if (string == NULL)
        return "is not valid UTF-8, or has a zero byte";
    if (json_object_get(object, key) != NULL) {
        json_decref(string);
        return "is given twice";
    }
    return json_object_set_new(object, key, string) == 0 ? NULL : "is not valid UTF-8";
}

json_t *fl_json_from_query(struct fl_str query, struct fl_outcome *outcome)
{
    json_t *object = json_object();
    struct fl_buf buf = FL_BUF_INIT;
    const char *why = NULL;
    char key[64];

    while (query.len > 0 && why == NULL) {
        struct fl_str pair = cut(&query, '&');

        if (pair.len > 0)
            why = add_pair(object, pair, &buf, key, sizeof key);
    }
    fl_buf_deinit(&buf);
    if (why == NULL)
        return object;
    fl_outcome_set_fault(outcome, key, why);
    json_decref(object);
    return NULL;
}

/* --- Objects to messages --- */

/* "waitMs" for "wait_ms". */
static bool is_camel_of(const char *key, const char *name)
{
    bool is_up = false;

    for (; *name != '\0'; name++) {
        if (*name == '_') {
            is_up = true;
            continue;
        }
        if (*key++ != (is_up ? (char)toupper(*name) : *name))
            return false;
        is_up = false;
    }
    return *key == '\0';
}

static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *type,
                                                  const char *key)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];

        if (strcmp(field->name, key) == 0 || is_camel_of(key, field->name))
            return field;
    }
    return NULL;
}

static const char *unknown_field(const ProtobufCMessageDescriptor *type, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "is not known here");

    for (unsigned i = 0; i < type->n_fields && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i == 0 ? ": there are " : ", ",
                                 type->fields[i].name);
    return text;
}

static bool read_uint(const json_t *value, uint64_t max, uint64_t *ret_value)
{
    const char *digits = json_string_value(value);
    char *end;

    if (json_is_integer(value)) {
        if (json_integer_value(value) < 0)
            return false;
        *ret_value = (uint64_t)json_integer_value(value);
        return *ret_value <= max;
    }
    if (digits == NULL || *digits < '0' || *digits > '9')
        return false;
    errno = 0;
    *ret_value = strtoull(digits, &end, 10);
    return errno == 0 && *end == '\0' && *ret_value <= max;
}

static bool read_bool(const json_t *value, protobuf_c_boolean *ret_value)
{
    const char *text = json_string_value(value);

    if (json_is_boolean(value)) {
        *ret_value = json_is_true(value);
        return true;
    }
    if (text == NULL || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0))
        return false;
    *ret_value = text[0] == 't';
    return true;
}

static bool read_enum(const json_t *value, const ProtobufCEnumDescriptor *type, int *ret_value)
{
    const char *text = json_string_value(value);
    uint64_t number;

    for (unsigned i = 0; text != NULL && i < type->n_values; i++) {
        if (strcasecmp(type->values[i].name, text) != 0)
            continue;
        *ret_value = type->values[i].value;
        return true;
    }
    if (!read_uint(value, INT32_MAX, &number))
        return false;
    *ret_value = (int)number;
    return true;
}

static const char *enum_values(const ProtobufCEnumDescriptor *type, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "must be one of");

    for (unsigned i = 0; i < type->n_values && used < size; i++)
        if (type->values[i].value != 0)
            used += (size_t)snprintf(text + used, size - used, " %s", type->values[i].name);
    return text;
}

struct reading {
    struct fl_arena *arena;
    struct fl_outcome *outcome;
    unsigned depth;
    char why[400];
};

static ProtobufCMessage *read_message(struct reading *reading, const json_t *object,
                                      const ProtobufCMessageDescriptor *type);

/* What is wrong with the value, or NULL. "" when a field of its own was wrong, and is told. */
static const char *read_value(struct reading *reading, const ProtobufCFieldDescriptor *field,
                              const json_t *value, void *place)
{
    uint64_t number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        if (!json_is_string(value))
            return "must be a string";
        if (strlen(json_string_value(value)) != json_string_length(value))
            return "is not valid UTF-8, or has a zero byte";
        *(char **)place = fl_arena_text(reading->arena, fl_str_from(json_string_value(value)));
        return NULL;
    case PROTOBUF_C_TYPE_BOOL:
        return read_bool(value, place) ? NULL : "must be true or false";
    case PROTOBUF_C_TYPE_UINT32:
        if (!read_uint(value, UINT32_MAX, &number))
            return "must be a whole number from 0 to 4294967295";
        *(uint32_t *)place = (uint32_t)number;
        return NULL;
    case PROTOBUF_C_TYPE_UINT64:
        return read_uint(value, UINT64_MAX, place)
                   ? NULL
                   : "must be a whole number, or one as a string of digits";
    case PROTOBUF_C_TYPE_ENUM:
        return read_enum(value, field->descriptor, place)
                   ? NULL
                   : enum_values(field->descriptor, reading->why, sizeof reading->why);
    case PROTOBUF_C_TYPE_MESSAGE:
        if (!json_is_object(value) || reading->depth >= DEPTH_MAX)
            return "must be an object";
        *(ProtobufCMessage **)place = read_message(reading, value, field->descriptor);
        return *(ProtobufCMessage **)place != NULL ? NULL : "";
    default:
        return "cannot be given as JSON";
    }
}

static bool read_field(struct reading *reading, const ProtobufCMessageDescriptor *type,
                       const char *key, const json_t *value, ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *field = find_field(type, key);
    const char *why = NULL;

    if (field == NULL || field->label == PROTOBUF_C_LABEL_REPEATED)
        why = unknown_field(type, reading->why, sizeof reading->why);
    else if (!json_is_null(value))
        why = read_value(reading, field, value, (char *)message + field->offset);
    if (why == NULL && !json_is_null(value) && (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0)
        *(uint32_t *)(void *)((char *)message + field->quantifier_offset) = field->id;
    if (why != NULL && why[0] != '\0') {
        char shown[64];

        fl_outcome_set_fault(reading->outcome,
                             field != NULL ? field->name
                                           : fl_str_escape(fl_str_from(key), shown, sizeof shown),
                             why);
    }
    return why == NULL;
}

static ProtobufCMessage *read_message(struct reading *reading, const json_t *object,
                                      const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *message = fl_arena_alloc(reading->arena, type->sizeof_message);
    const char *key;
    json_t *value;

    type->message_init(message);
    reading->depth++;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!read_field(reading, type, key, value, message))
            return NULL;
    }
    reading->depth--;
    return message;
}

ProtobufCMessage *fl_json_to_message(const json_t *object, const ProtobufCMessageDescriptor *type,
                                     struct fl_arena *arena, struct fl_outcome *outcome)
{
    struct reading reading = {.arena = arena, .outcome = outcome};

    return read_message(&reading, object, type);
}

/* --- Messages to objects --- */

static json_t *write_value(const ProtobufCFieldDescriptor *field, const void *place)
{
    const ProtobufCEnumValue *value;

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return fl_json_text(*(char *const *)place);
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)place);
    case PROTOBUF_C_TYPE_UINT32:
        return fl_json_number(*(const uint32_t *)place);
    case PROTOBUF_C_TYPE_UINT64:
        return fl_json_number(*(const uint64_t *)place);
    case PROTOBUF_C_TYPE_ENUM:
        value = protobuf_c_enum_descriptor_get_value(field->descriptor, *(const int *)place);
        return value != NULL && value->value != 0 ? json_string(value->name) : NULL;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(ProtobufCMessage *const *)place != NULL
                   ? fl_json_from_message(*(ProtobufCMessage *const *)place)
                   : NULL;
    default:
        return NULL;
    }
}

/* All repeated fields of ours hold messages or strings: pointers. */
static json_t *write_list(const ProtobufCFieldDescriptor *field, const char *message)
{
    size_t n = *(const size_t *)(const void *)(message + field->quantifier_offset);
    const void *const *items = *(const void *const *const *)(const void *)(message + field->offset);
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, write_value(field, &items[i]));
    return list;
}

static bool is_unset(const ProtobufCFieldDescriptor *field, const char *message)
{
    return (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
           *(const uint32_t *)(const void *)(message + field->quantifier_offset) != field->id;
}

json_t *fl_json_from_message(const ProtobufCMessage *message)
{
    const ProtobufCMessageDescriptor *type = message->descriptor;
    const char *bytes = (const char *)message;
    json_t *object = json_object();

    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        json_t *value = NULL;

        if (field->label == PROTOBUF_C_LABEL_REPEATED)
            value = write_list(field, bytes);
        else if (!is_unset(field, bytes))
            value = write_value(field, bytes + field->offset);
        if (value != NULL)
            json_object_set_new(object, field->name, value);
    }
    return object;
}
