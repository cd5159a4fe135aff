#include "base/error.h"

#include <errno.h>

const char *fl_error_text(int error)
{
    switch (error) {
    case FL_OK:
        return "no error";
#define X(name, value, text)                                                                       \
    case FL_E_##name:                                                                              \
        return text;
        FL_ERROR_TABLE(X)
#undef X
    default:
        return "unknown error";
    }
}

int fl_error_from_errno(int errnum)
{
    switch (errnum) {
    case 0:
        return FL_OK;
    case ENOMEM:
        return FL_E_NOMEM;
    case EINVAL:
        return FL_E_INVALID;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return FL_E_NOSPACE;
    case EEXIST:
        return FL_E_EXISTS;
    case ENOENT:
        return FL_E_NOT_FOUND;
    case EBUSY:
        return FL_E_BUSY;
    case EAGAIN:
        return FL_E_AGAIN;
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
        return FL_E_CLOSED;
    case ETIMEDOUT:
        return FL_E_TIMEOUT;
    case ECONNREFUSED:
    case EHOSTUNREACH:
    case ENETUNREACH:
        return FL_E_UNREACHABLE;
    case EACCES:
    case EPERM:
        return FL_E_DENIED;
    default:
        return FL_E_IO;
    }
}
