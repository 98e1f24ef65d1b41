/* fake_aws.c - has what fakes of Amazon's services share. */
#include "tests/fakes/cloud/fake_aws.h"

#include "base/core/arena.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/aws_sign.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SKEW_US_MAX ((int64_t)300 * 1000000)
#define METADATA_TOKEN "AQAAAFakeMetadataToken=="

/* ---- forms and texts ---- */

int aws_parameters_read(struct arena *arena, struct str body, struct aws_parameters *ret)
{
    *ret = (struct aws_parameters){ 0 };
    while (body.len > 0) {
        struct str value = str_cut(&body, '&'), name = str_cut(&value, '=');
        char key[200];
        if (ret->count == AWS_PARAMETERS_MAX || name.len >= sizeof key) return -E2BIG;
        CLEANUP(buf_fini) struct buf query = { 0 };
        buf_printf(&query, "v=" STR_FMT, STR_ARG(value));
        ret->name[ret->count] = arena_str(arena, name);
        ret->value[ret->count++] = form_query(arena, buf_view(&query), "v");
    }
    return 0;
}

struct str aws_parameter(const struct aws_parameters *p, const char *name)
{
    for (uint32_t i = 0; i < p->count; i++)
        if (str_eq(p->name[i], str_from(name))) return p->value[i];
    return (struct str){ 0 };
}

void aws_put_xml(struct buf *out, struct str text)
{
    static const struct {
        char c;
        const char *as;
    } rows[] = {
        { '&', "&amp;" }, { '<', "&lt;" }, { '>', "&gt;" }, { '"', "&quot;" }, { '\'', "&apos;" }
    };
    for (size_t i = 0; i < text.len; i++) {
        size_t k = 0;
        while (k < COUNT_OF(rows) && rows[k].c != text.data[i])
            k++;
        if (k < COUNT_OF(rows))
            buf_text(out, rows[k].as);
        else
            buf_byte(out, text.data[i]);
    }
}

struct str fake_aws_http_date(const struct fake_aws *a, int64_t now_us, struct arena *arena)
{
    char text[64];
    struct tm t = { 0 };
    time_t seconds = (time_t)((now_us + a->date_us) / 1000000);
    gmtime_r(&seconds, &t);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &t);
    return arena_str(arena, str_from(text));
}

/* ---- sessions ---- */

static void session_texts(uint32_t n, char id[40], char secret[60], char token[60])
{
    snprintf(id, 40, "ASIAFAKESESSION%05u", n);
    snprintf(secret, 60, "secretOfSession/%05u+aaaaaaaaaaaaaaaaaaa", n);
    snprintf(token, 60, "tokenOfSession/%05u+bbbbbbbbbbbbbbbbbbbbbbb==", n);
}

static uint32_t open_session(struct fake_aws *a, int64_t now_us)
{
    must(a->session_count < AWS_SESSIONS_MAX);
    a->session_end_us[a->session_count] = now_us + a->session_us;
    return a->session_count++;
}

/* ---- signatures ---- */

struct credential {
    struct str id, day, region, service, end;
};

/* Cuts "Credential=ID/DAY/REGION/SERVICE/aws4_request, SignedHeaders=a;b, Signature=..." */
static bool cut_authorization(struct str text, struct credential *ret, struct str *ret_headers)
{
    if (!str_starts(text, STR("AWS4-HMAC-SHA256 Credential="))) return false;
    text = str_of(text.data + 28, text.len - 28);
    struct str scope = str_cut(&text, ',');
    ret->id = str_cut(&scope, '/');
    ret->day = str_cut(&scope, '/');
    ret->region = str_cut(&scope, '/');
    ret->service = str_cut(&scope, '/');
    ret->end = scope;
    text = str_trim(text);
    if (!str_starts(text, STR("SignedHeaders="))) return false;
    text = str_of(text.data + 14, text.len - 14);
    *ret_headers = str_cut(&text, ',');
    return str_eq(scope, STR("aws4_request"));
}

static struct str header_of(const struct web_ask *ask, struct str name, struct arena *arena)
{
    struct str copy = arena_str(arena, name);
    if (str_eq(name, STR("content-type"))) return ask->content_type;
    return form_header(ask, copy.data);
}

static struct str host_of(const struct web_ask *ask)
{
    size_t at = str_find(ask->url, STR("://"));
    if (at == SIZE_MAX) return form_header(ask, "host");
    struct str rest = str_of(ask->url.data + at + 3, ask->url.len - at - 3);
    return str_cut(&rest, '/');
}

/* Finds the secret of a key that signs; NULL: nobody has it. */
static const char *find_key(const struct fake_aws *a, struct str id, struct str token,
                            int64_t now_us, struct arena *arena, const char **ret_code)
{
    *ret_code = "InvalidClientTokenId";
    if (a->key_id && str_eq(id, str_from(a->key_id)))
        return token.len == 0 ? arena_str(arena, str_from(a->secret)).data : NULL;
    for (uint32_t i = 0; i < a->session_count; i++) {
        char of_id[40], secret[60], of_token[60];
        session_texts(i, of_id, secret, of_token);
        if (!str_eq(id, str_from(of_id)) || !str_eq(token, str_from(of_token))) continue;
        *ret_code = "RequestExpired";
        if (now_us >= a->session_end_us[i]) return NULL;
        return arena_str(arena, str_from(secret)).data;
    }
    return NULL;
}

static bool date_is_near(const struct fake_aws *a, struct str date, int64_t now_us)
{
    char text[32];
    int64_t us;
    if (date.len != AWS_DATE_BYTES - 1) return false;
    snprintf(text, sizeof text, "%.4s-%.2s-%.2sT%.2s:%.2s:%.2sZ", date.data, date.data + 4,
             date.data + 6, date.data + 9, date.data + 11, date.data + 13);
    return date_parse(str_from(text), &us) == 0 && llabs(us - (now_us + a->date_us)) <= SKEW_US_MAX;
}

const char *fake_aws_check(struct fake_aws *a, const struct web_ask *ask, const char *service,
                           int64_t now_us, struct arena *arena, const char **ret_why)
{
    CLEANUP(buf_fini) struct buf want = { 0 };
    struct aws_header header[AWS_SIGNED_HEADERS_MAX];
    struct credential c;
    struct str names, has = form_header(ask, "authorization"),
                      date = form_header(ask, "x-amz-date");
    struct str token = form_header(ask, "x-amz-security-token");
    struct form_target at;
    const char *code;
    uint32_t count = 0;
    *ret_why = "the request is not signed";
    if (!has.data || !cut_authorization(has, &c, &names)) return "MissingAuthenticationToken";
    const char *secret = find_key(a, c.id, token, now_us, arena, &code);
    *ret_why = "the key is not known, or its session is over";
    if (!secret) return code;
    *ret_why = "the date of the request is too far off";
    if (!date_is_near(a, date, now_us)) return "RequestExpired";
    while (names.len > 0 && count < AWS_SIGNED_HEADERS_MAX) {
        struct str name = str_cut(&names, ';');
        if (str_eq(name, STR("host")) || str_eq(name, STR("x-amz-date")) ||
            str_eq(name, STR("x-amz-security-token")))
            continue;
        header[count++] = (struct aws_header){ name, header_of(ask, name, arena) };
    }
    must(form_target(ask->url, STR(""), &at) == 0);
    const char *region = strcmp(service, "pricing") == 0 ? "us-east-1" : a->region;
    const struct aws_request req = { .method = ask->method,
                                     .host = host_of(ask),
                                     .path = at.path,
                                     .query = at.query,
                                     .header = header,
                                     .header_count = count,
                                     .body = ask->body,
                                     .region = str_from(region),
                                     .service = str_from(service) };
    const struct aws_key key = { .id = c.id, .secret = str_from(secret), .token = token };
    *ret_why = "the signature is another";
    struct str date_copy = arena_str(arena, date);
    must(aws_sign(&req, &key, date_copy.data, &want) == 0);
    return str_eq(buf_view(&want), has) ? NULL : "SignatureDoesNotMatch";
}

/* ---- the machine's metadata ---- */

static void put_session_json(struct fake_aws *a, int64_t now_us, struct buf *out)
{
    char id[40], secret[60], token[60], end[DATE_BYTES];
    uint32_t n = open_session(a, now_us);
    session_texts(n, id, secret, token);
    date_print(a->session_end_us[n] + a->date_us, end);
    buf_printf(out,
               "{\"Code\": \"Success\", \"LastUpdated\": \"2026-01-01T00:00:00Z\", \"Type\": "
               "\"AWS-HMAC\", \"AccessKeyId\": \"%s\", \"SecretAccessKey\": \"%s\", \"Token\": "
               "\"%s\", \"Expiration\": \"%s\"}",
               id, secret, token, end);
}

void fake_aws_metadata(struct fake_aws *a, const struct web_ask *ask, struct str path,
                       int64_t now_us, struct aws_answer *ret)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    struct str lives = form_header(ask, "x-aws-ec2-metadata-token-ttl-seconds");
    struct str token = form_header(ask, "x-aws-ec2-metadata-token");
    struct str rest = str_starts(path, str_from(roles))
                          ? str_of(path.data + sizeof roles - 1, path.len - sizeof roles + 1)
                          : (struct str){ 0 };
    ret->status = 200;
    ret->content_type = "text/plain";
    if (str_eq(ask->method, STR("PUT")) && str_eq(path, STR("/latest/api/token")))
        lives.data ? buf_text(&ret->body, METADATA_TOKEN) : (ret->status = 400);
    else if (!str_eq(token, STR(METADATA_TOKEN)))
        ret->status = 401;
    else if (!a->role || !rest.data)
        ret->status = 404;
    else if (rest.len == 0)
        buf_text(&ret->body, a->role);
    else if (str_eq(rest, str_from(a->role)))
        put_session_json(a, now_us, &ret->body);
    else
        ret->status = 404;
}

/* ---- the token service ---- */

static void refuse_sts(struct aws_answer *ret, int status, const char *code, const char *why)
{
    ret->status = status;
    buf_printf(&ret->body,
               "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error>"
               "<Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error>"
               "<RequestId>r</RequestId></ErrorResponse>",
               code, why);
}

void fake_aws_sts(struct fake_aws *a, const struct aws_parameters *p, int64_t now_us,
                  struct aws_answer *ret)
{
    static const char *const known[] = { "Action", "Version", "RoleArn", "RoleSessionName",
                                         "WebIdentityToken" };
    char id[40], secret[60], token[60], end[DATE_BYTES];
    ret->content_type = "text/xml";
    for (uint32_t i = 0; i < p->count; i++) {
        size_t k = 0;
        while (k < COUNT_OF(known) && !str_eq(p->name[i], str_from(known[k])))
            k++;
        if (k == COUNT_OF(known)) {
            refuse_sts(ret, 400, "ValidationError", "a parameter is not known");
            return;
        }
    }
    if (!str_eq(aws_parameter(p, "Version"), STR("2011-06-15")) ||
        !str_starts(aws_parameter(p, "RoleArn"), STR("arn:aws:iam::")) ||
        aws_parameter(p, "RoleSessionName").len < 2) {
        refuse_sts(ret, 400, "ValidationError", "a parameter is missing");
        return;
    }
    if (!a->identity || !str_eq(aws_parameter(p, "WebIdentityToken"), str_from(a->identity))) {
        refuse_sts(ret, 400, "InvalidIdentityToken", "the identity is not taken");
        return;
    }
    uint32_t n = open_session(a, now_us);
    session_texts(n, id, secret, token);
    date_print(a->session_end_us[n] + a->date_us, end);
    ret->status = 200;
    buf_printf(
        &ret->body,
        "<AssumeRoleWithWebIdentityResponse "
        "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleWithWebIdentityResult>"
        "<Credentials><SessionToken>%s</SessionToken><SecretAccessKey>%s</SecretAccessKey>"
        "<Expiration>%s</Expiration><AccessKeyId>%s</AccessKeyId></Credentials>"
        "</AssumeRoleWithWebIdentityResult><ResponseMetadata><RequestId>r</RequestId>"
        "</ResponseMetadata></AssumeRoleWithWebIdentityResponse>",
        token, secret, end, id);
}
