#include "core/types.h"

#include <stdio.h>

#include "base/error.h"

const char *fl_session_id_format(struct fl_session_id id, char *out)
{
    snprintf(out, FL_SESSION_ID_TEXT_SIZE, "s_%016llx%016llx", (unsigned long long)id.high,
             (unsigned long long)id.low);
    return out;
}

static int parse_hex64(const char *text, uint64_t *ret_value)
{
    uint64_t value = 0;

    for (int i = 0; i < 16; i++) {
        char c = text[i];

        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return FL_E_INVALID;
    }
    *ret_value = value;
    return FL_OK;
}

int fl_session_id_parse(struct fl_str text, struct fl_session_id *ret_id)
{
    struct fl_session_id id;

    if (text.len != FL_SESSION_ID_TEXT_SIZE - 1 || text.data[0] != 's' || text.data[1] != '_')
        return FL_E_INVALID;
    if (parse_hex64(text.data + 2, &id.high) < 0 || parse_hex64(text.data + 18, &id.low) < 0)
        return FL_E_INVALID;
    if (fl_session_id_is_none(id))
        return FL_E_INVALID;
    *ret_id = id;
    return FL_OK;
}

static const char *text_fault(struct fl_str text)
{
    if (!fl_str_is_utf8(text))
        return "is not valid UTF-8";
    if (fl_str_has_control(text))
        return "has a control character";
    return NULL;
}

const char *fl_name_fault(struct fl_str name)
{
    if (name.len == 0)
        return "is empty";
    if (name.len > FL_NAME_MAX)
        return "is longer than 512 bytes";
    return text_fault(name);
}

const char *fl_client_name_fault(struct fl_str client)
{
    if (client.len > FL_CLIENT_MAX)
        return "is longer than 128 bytes";
    return text_fault(client);
}

const char *fl_mode_text(enum fl_mode mode)
{
    switch (mode) {
    case FL_MODE_EXCLUSIVE:
        return "exclusive";
    case FL_MODE_SHARED:
        return "shared";
    case FL_MODE_COUNTED:
        return "counted";
    case FL_MODE_NONE:
        break;
    }
    return "none";
}
