/* fake_ec2_answer.c - reads parameters and writes replies of the fake of EC2. */
#include "tests/fakes/cloud/fake_ec2_answer.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <stdio.h>

void fake_ec2_refuse(struct ec2_answer *a, int status, const char *code, const char *message)
{
    buf_clear(&a->out.body);
    a->out.status = status;
    if (a->json)
        buf_printf(&a->out.body, "{\"__type\":\"com.amazonaws.pricing#%s\",\"Message\":\"%s\"}",
                   code, message);
    else
        buf_printf(&a->out.body,
                   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error>"
                   "<Code>%s</Code><Message>%s</Message></Error></Errors>"
                   "<RequestID>r</RequestID></Response>",
                   code, message);
}

void fake_ec2_refuse_form(struct ec2_answer *a, const char *code, const char *why)
{
    struct str action = aws_parameter(&a->p, "Action");
    fake_fleet_bad_form(a->fleet, STR_FMT ": %s", STR_ARG(action), why);
    fake_ec2_refuse(a, 400, code, why);
}

static const struct {
    enum fleet_fault fault;
    int status;
    const char *code, *message;
} rows[] = {
    { FLEET_STOCK_OUT, 500, "InsufficientInstanceCapacity", "no capacity in this zone" },
    { FLEET_QUOTA, 400, "VcpuLimitExceeded", "more vCPU than your limit allows" },
    { FLEET_THROTTLE, 503, "RequestLimitExceeded", "Request limit exceeded." },
    { FLEET_AUTH, 401, "AuthFailure", "not able to validate the access credentials" },
    { FLEET_FORBIDDEN, 403, "UnauthorizedOperation", "not authorized for this operation" },
    { FLEET_INVALID, 400, "InvalidParameterValue", "a value is invalid" },
    { FLEET_SERVER_ERROR, 503, "Unavailable", "the server is overloaded" },
    { FLEET_UNKNOWN_CODE, 400, "NewKindOfError", "words that are in no table" },
    { FLEET_WRONG_CLOCK, 400, "RequestExpired", "Request has expired." },
};

const char *fake_ec2_code_of(enum fleet_fault fault)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (rows[i].fault == fault) return rows[i].code;
    return NULL;
}

bool fake_ec2_refuse_fault(struct ec2_answer *a)
{
    for (size_t i = 0; a->row && i < COUNT_OF(rows); i++) {
        if (rows[i].fault != a->row->fault) continue;
        fake_ec2_refuse(a, rows[i].status, rows[i].code, rows[i].message);
        return true;
    }
    return false;
}

bool fake_ec2_lacks_template(struct ec2_answer *a, const char *prefix)
{
    char name[120];
    uint64_t version = 1;
    snprintf(name, sizeof name, "%s.LaunchTemplateId", prefix);
    struct str id = fake_ec2_get(a, name);
    snprintf(name, sizeof name, "%s.LaunchTemplateName", prefix);
    struct str by_name = fake_ec2_get(a, name);
    snprintf(name, sizeof name, "%s.Version", prefix);
    struct str v = fake_ec2_get(a, name);
    if (!id.data && !by_name.data) return false;
    bool known =
        id.data ? str_eq(id, STR(EC2_USER_TEMPLATE)) : str_eq(by_name, STR(EC2_USER_TEMPLATE_NAME));
    if (!known)
        fake_ec2_refuse(a, 400,
                        id.data ? "InvalidLaunchTemplateId.NotFound"
                                : "InvalidLaunchTemplateName.NotFoundException",
                        "there is no such template");
    bool word = str_eq(v, STR("$Default")) || str_eq(v, STR("$Latest"));
    if (known && !word && (str_to_u64(v, &version) < 0 || version == 0 || version > 3)) {
        fake_ec2_refuse(a, 400, "InvalidLaunchTemplateId.VersionNotFound",
                        "there is no such version");
        return true;
    }
    return !known;
}

/* ---- the form of requests ---- */

/* True if a name is that of a pattern, in which # stands for a number. */
static bool fits(const char *pattern, struct str name)
{
    size_t i = 0;
    for (; *pattern; pattern++) {
        if (*pattern != '#') {
            if (i == name.len || name.data[i++] != *pattern) return false;
            continue;
        }
        size_t from = i;
        while (i < name.len && name.data[i] >= '0' && name.data[i] <= '9')
            i++;
        if (i == from || name.data[from] == '0') return false; /* lists begin at 1 */
    }
    return i == name.len;
}

bool fake_ec2_check_names(struct ec2_answer *a, const char *const *known)
{
    char why[300];
    for (uint32_t i = 0; i < a->p.count; i++) {
        struct str name = a->p.name[i];
        const char *const *k = known;
        if (str_eq(name, STR("Action")) || str_eq(name, STR("Version"))) continue;
        while (*k && !fits(*k, name))
            k++;
        for (uint32_t j = 0; j < i; j++)
            if (str_eq(a->p.name[j], name)) k = &(const char *){ NULL };
        if (*k) continue;
        snprintf(why, sizeof why, "parameter " STR_FMT " is not recognized", STR_ARG(name));
        fake_ec2_refuse_form(a, "UnknownParameter", why);
        return false;
    }
    return true;
}

struct str fake_ec2_get(const struct ec2_answer *a, const char *name)
{
    return aws_parameter(&a->p, name);
}

const char *fake_ec2_text(struct ec2_answer *a, const char *name)
{
    struct str s = fake_ec2_get(a, name);
    return s.data ? s.data : "";
}

struct str fake_ec2_get_n(const struct ec2_answer *a, const char *format, int n)
{
    char name[96], number[12];
    const char *hash = strchr(format, '#');
    snprintf(number, sizeof number, "%d", n);
    snprintf(name, sizeof name, "%.*s%s%s", (int)(hash - format), format, number, hash + 1);
    return aws_parameter(&a->p, name);
}

/* ---- replies ---- */

void fake_ec2_put(struct ec2_answer *a, const char *name, const char *value)
{
    buf_printf(&a->out.body, "<%s>", name);
    aws_put_xml(&a->out.body, str_from(value));
    buf_printf(&a->out.body, "</%s>", name);
}

void fake_ec2_begin(struct ec2_answer *a, const char *action)
{
    a->out.status = 200;
    buf_clear(&a->out.body);
    buf_printf(&a->out.body,
               "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<%sResponse "
               "xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId>",
               action);
}

void fake_ec2_end(struct ec2_answer *a, const char *action)
{
    buf_printf(&a->out.body, "</%sResponse>", action);
}
