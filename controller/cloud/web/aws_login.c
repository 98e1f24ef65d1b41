/* aws_login.c - finds credentials of Amazon's services.
 *
 * Names of variables, of members and the order are those of Amazon's own clients ("Standardized credential
 * providers" of the SDK reference guide; "Instance metadata service" of the EC2 user guide). Left out: roles that a
 * profile assumes, single sign-on and processes that print keys, each of which needs a client of its own; a
 * controller on a machine of the cloud has the machine's role, one in a cluster a web identity. */
#include "controller/cloud/web/aws_login.h"

#include "base/core/json_path.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "controller/cloud/web/aws_call.h"
#include "controller/cloud/web/web_section.h"

#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)64 << 10)
#define METADATA "http://169.254.169.254"
#define METADATA_US 2000000 /* it is on the machine's own network, or not there */
#define ROLES "/latest/meta-data/iam/security-credentials/"

enum stage { BEGIN, WEB_IDENTITY, METADATA_TOKEN, METADATA_ROLE, METADATA_KEY };

struct found {
    struct str id, secret, token;
    int64_t expires_us; /* the date; 0: never */
};

static void no_memory(struct web_step *ret)
{
    web_refuse(ret, OFFER_TRANSIENT, "no memory for credentials");
}

/* A line break would end a header, and begin another. */
static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.data[i] <= ' ' || s.data[i] > '~') return false;
    return true;
}

/* Takes the credentials into the login; its end is told in fleet time. */
static void take(struct web_provider *p, const struct found *f, int64_t now_us, int64_t wall_us,
                 struct web_step *ret)
{
    struct web_login *l = &p->login;
    if (f->id.len == 0 || f->secret.len == 0) {
        web_refuse(ret, OFFER_AUTH, "the credentials have no access key, or no secret");
        return;
    }
    if (!is_plain(f->id) || !is_plain(f->secret) || !is_plain(f->token)) {
        web_refuse(ret, OFFER_AUTH, "the credentials have blanks or other signs that no key has");
        return;
    }
    if (web_login_set(&l->key_id, f->id) < 0 || web_login_set(&l->key, f->secret) < 0 ||
        web_login_set(&l->token, f->token) < 0) {
        no_memory(ret);
        return;
    }
    int64_t left_us = f->expires_us - (wall_us + l->skew_us);
    l->expires_us = f->expires_us == 0 ? 0 : now_us + (left_us > 1 ? left_us : 1);
    web_succeed(ret);
}

static struct str variable(const struct web_provider *p, const char *name)
{
    return web_environment(p->host, str_from(name));
}

/* ---- a credentials file ---- */

/* Reads the keys of a profile; others, and other profiles, are passed over. False: there is no such profile. */
static bool read_profile(struct str text, struct str profile, struct found *ret)
{
    bool inside = false, seen = false;
    while (text.len > 0) {
        struct str line = str_cut(&text, '\n');
        if (str_ends(line, STR("\r"))) line.len--;
        line = str_trim(line);
        if (line.len == 0 || line.data[0] == '#' || line.data[0] == ';') continue;
        if (line.data[0] == '[') {
            struct str name = str_of(line.data + 1, line.len - 1);
            inside = str_eq(str_trim(str_cut(&name, ']')), profile);
            seen = seen || inside;
            continue;
        }
        struct str value = line, key = str_trim(str_cut(&value, '='));
        value = str_trim(value);
        if (!inside) continue;
        if (str_eq(key, STR("aws_access_key_id"))) ret->id = value;
        if (str_eq(key, STR("aws_secret_access_key"))) ret->secret = value;
        if (str_eq(key, STR("aws_session_token"))) ret->token = value;
    }
    return seen;
}

static void take_file(struct web_provider *p, struct str text, int64_t now_us, int64_t wall_us,
                      struct web_step *ret)
{
    struct str profile = p->settings->section->profile;
    struct found f = { 0 };
    if (profile.len == 0) profile = variable(p, "AWS_PROFILE");
    if (profile.len == 0) profile = STR("default");
    if (!read_profile(text, profile, &f))
        web_refuse(ret, OFFER_AUTH, "the credentials file has no profile '" STR_FMT "'",
                   STR_ARG(profile));
    else
        take(p, &f, now_us, wall_us, ret);
}

/* Takes the credentials that the section names. */
static void take_named(struct web_provider *p, struct web_op *op, int64_t now_us, int64_t wall_us,
                       struct web_step *ret)
{
    struct err err = { 0 };
    struct str text;
    int rc = web_credentials(p, op, &text, &err);
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err.text);
    else
        take_file(p, text, now_us, wall_us, ret);
}

/* Reads the file at its usual place. False: there is none. */
static bool take_shared(struct web_provider *p, int64_t now_us, int64_t wall_us,
                        struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf text = { .max = FILE_BYTES_MAX };
    CLEANUP(buf_fini) struct buf path = { 0 };
    struct err err = { 0 };
    struct str named = variable(p, "AWS_SHARED_CREDENTIALS_FILE"), home = variable(p, "HOME");
    if (named.len == 0 && home.len == 0) return false;
    if (named.len > 0)
        buf_str(&path, named);
    else
        buf_printf(&path, STR_FMT "/.aws/credentials", STR_ARG(home));
    if (path.rc < 0) {
        no_memory(ret);
        return true;
    }
    int rc = p->host->read_secret(p->host->ctx, path.data, &text, &err);
    if (rc == -ENOENT && named.len == 0) return false;
    if (rc < 0)
        web_refuse(ret, rc == -ENOMEM ? OFFER_TRANSIENT : OFFER_AUTH, "%s", err_text(&err, rc));
    else
        take_file(p, buf_view(&text), now_us, wall_us, ret);
    if (text.data) explicit_bzero(text.data, text.len);
    return true;
}

/* ---- a web identity ---- */

/* Codes of "AssumeRoleWithWebIdentity" and "Common Errors", AWS Security Token Service API reference. */
static const struct web_code sts_codes[] = {
    { "AccessDenied", OFFER_AUTH, false },
    { "ExpiredTokenException", OFFER_AUTH, false },
    { "InvalidIdentityToken", OFFER_AUTH, false },
    { "IDPRejectedClaim", OFFER_AUTH, false },
    { "RegionDisabledException", OFFER_AUTH, false },
    { "MalformedPolicyDocument", OFFER_AUTH, false },
    { "ValidationError", OFFER_AUTH, false },
    { "IDPCommunicationError", OFFER_TRANSIENT, false },
    { "Throttling", OFFER_THROTTLE, false },
    { "ThrottlingException", OFFER_THROTTLE, false },
    { "ServiceUnavailable", OFFER_TRANSIENT, false },
    { "InternalFailure", OFFER_TRANSIENT, false },
    { 0 },
};

static void ask_role(struct web_provider *p, struct web_op *op, struct str sts,
                     struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf token = { .max = FILE_BYTES_MAX };
    CLEANUP(buf_fini) struct buf body = { 0 };
    struct err err = { 0 };
    struct str file = variable(p, "AWS_WEB_IDENTITY_TOKEN_FILE");
    struct str session = variable(p, "AWS_ROLE_SESSION_NAME");
    struct str path = arena_str(op->arena, file);
    if (!path.data) {
        no_memory(ret);
        return;
    }
    int rc = p->host->read_secret(p->host->ctx, path.data, &token, &err);
    if (rc < 0) {
        web_refuse(ret, OFFER_AUTH, "AWS_WEB_IDENTITY_TOKEN_FILE: %s", err_text(&err, rc));
        return;
    }
    while (token.len > 0 && (unsigned char)token.data[token.len - 1] <= ' ')
        token.len--;
    aws_form(&body, "AssumeRoleWithWebIdentity", "2011-06-15");
    aws_put(&body, variable(p, "AWS_ROLE_ARN"), "RoleArn");
    aws_put(&body, session.len > 0 ? session : p->settings->fleet, "RoleSessionName");
    aws_put(&body, buf_view(&token), "WebIdentityToken");
    op->stage = WEB_IDENTITY;
    aws_ask_unsigned(op, sts, &body, ret);
    if (token.data) explicit_bzero(token.data, token.len);
    if (body.data) explicit_bzero(body.data, body.len);
}

static void take_role(struct web_provider *p, const struct web_op *op, const struct web_reply *r,
                      int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    CLEANUP(arena_fini) struct arena tree = { 0 };
    struct xml_node *root = NULL;
    arena_init(&tree, AWS_TREE_BYTES);
    aws_learn_clock(p, r, wall_us);
    if (r->status != 200) {
        aws_refuse(p, op, r, sts_codes, ret);
        return;
    }
    if (xml_read(&tree, r->body, &root, NULL) < 0) root = NULL;
    const struct xml_node *c = xml_at(root, "AssumeRoleWithWebIdentityResult.Credentials");
    struct found f = { .id = xml_text(c, "AccessKeyId"),
                       .secret = xml_text(c, "SecretAccessKey"),
                       .token = xml_text(c, "SessionToken") };
    if (!c || date_parse(xml_text(c, "Expiration"), &f.expires_us) < 0)
        web_refuse(ret, OFFER_TRANSIENT, "the token service's reply has no credentials");
    else
        take(p, &f, now_us, wall_us, ret);
}

/* ---- the machine's role ---- */

static void no_source(struct web_step *ret, const char *why)
{
    web_refuse(ret, OFFER_AUTH,
               "no credentials: name a credentials_file, set AWS_ACCESS_KEY_ID and "
               "AWS_SECRET_ACCESS_KEY, or give the machine a role (%s)",
               why);
}

static void ask_metadata(const struct web_provider *p, struct web_op *op, const char *method,
                         const char *path, enum stage stage, struct web_step *ret)
{
    struct str base = variable(p, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (base.len == 0) base = STR(METADATA);
    while (base.len > 0 && base.data[base.len - 1] == '/')
        base.len--;
    op->stage = stage;
    if (web_ask(op, ret, method, STR_FMT "%s", STR_ARG(base), path) < 0) return;
    ret->ask.deadline_us = METADATA_US;
    if (stage == METADATA_TOKEN)
        web_ask_header(op, ret, "x-aws-ec2-metadata-token-ttl-seconds", "300");
    else
        web_ask_header(op, ret, "x-aws-ec2-metadata-token", "%s", op->note);
}

static void begin_metadata(const struct web_provider *p, struct web_op *op, struct web_step *ret)
{
    if (str_eq_nocase(variable(p, "AWS_EC2_METADATA_DISABLED"), STR("true")))
        no_source(ret, "AWS_EC2_METADATA_DISABLED is set");
    else
        ask_metadata(p, op, "PUT", "/latest/api/token", METADATA_TOKEN, ret);
}

static void take_metadata_key(struct web_provider *p, const struct web_reply *r, int64_t now_us,
                              int64_t wall_us, struct web_step *ret)
{
    CLEANUP(buf_fini) struct buf id = { 0 };
    CLEANUP(buf_fini) struct buf secret = { 0 };
    CLEANUP(buf_fini) struct buf token = { 0 };
    CLEANUP(buf_fini) struct buf end = { 0 };
    struct found f = { 0 };
    bool whole = json_path_text(r->body, "AccessKeyId", &id) == 0 &&
                 json_path_text(r->body, "SecretAccessKey", &secret) == 0 &&
                 json_path_text(r->body, "Token", &token) == 0 &&
                 json_path_text(r->body, "Expiration", &end) == 0 &&
                 date_parse(buf_view(&end), &f.expires_us) == 0;
    f.id = buf_view(&id);
    f.secret = buf_view(&secret);
    f.token = buf_view(&token);
    if (whole)
        take(p, &f, now_us, wall_us, ret);
    else
        no_source(ret, "its metadata has no key");
    if (secret.data) explicit_bzero(secret.data, secret.len);
    if (token.data) explicit_bzero(token.data, token.len);
}

/* Each reply but the last is one line, which the next request repeats. */
static void go_on_metadata(struct web_provider *p, struct web_op *op, const struct web_reply *r,
                           int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct str rest = r->body, line = str_trim(str_cut(&rest, '\n'));
    char path[sizeof ROLES + 128];
    if (r->status != 200) {
        no_source(ret, r->status == 0     ? "no metadata service answers here"
                       : r->status == 404 ? "it has none"
                                          : "its metadata service refuses");
        return;
    }
    if (op->stage == METADATA_KEY) {
        take_metadata_key(p, r, now_us, wall_us, ret);
        return;
    }
    if (line.len == 0 || line.len >= sizeof op->note || !is_plain(line)) {
        no_source(ret, "its metadata service answers with nothing of use");
        return;
    }
    if (op->stage == METADATA_TOKEN) {
        web_text_copy(op->note, sizeof op->note, line);
        ask_metadata(p, op, "GET", ROLES, METADATA_ROLE, ret);
        return;
    }
    snprintf(path, sizeof path, ROLES STR_FMT, STR_ARG(line));
    ask_metadata(p, op, "GET", path, METADATA_KEY, ret);
}

/* ---- the login ---- */

static void begin(struct web_provider *p, struct web_op *op, struct str sts, int64_t now_us,
                  int64_t wall_us, struct web_step *ret)
{
    const struct web_section *s = p->settings->section;
    const struct found of_environment = { .id = variable(p, "AWS_ACCESS_KEY_ID"),
                                          .secret = variable(p, "AWS_SECRET_ACCESS_KEY"),
                                          .token = variable(p, "AWS_SESSION_TOKEN") };
    if (s->credentials_file.len > 0 || s->credentials_env.len > 0)
        take_named(p, op, now_us, wall_us, ret);
    else if (s->profile.len == 0 && of_environment.id.len > 0)
        take(p, &of_environment, now_us, wall_us, ret);
    else if (s->profile.len == 0 && variable(p, "AWS_WEB_IDENTITY_TOKEN_FILE").len > 0 &&
             variable(p, "AWS_ROLE_ARN").len > 0)
        ask_role(p, op, sts, ret);
    else if (take_shared(p, now_us, wall_us, ret))
        return;
    else if (s->profile.len > 0)
        web_refuse(ret, OFFER_AUTH, "profile '" STR_FMT "': there is no credentials file",
                   STR_ARG(s->profile));
    else
        begin_metadata(p, op, ret);
}

void aws_login(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
               struct str sts, int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    if (!reply)
        begin(p, op, sts, now_us, wall_us, ret);
    else if (op->stage == WEB_IDENTITY)
        take_role(p, op, reply, now_us, wall_us, ret);
    else
        go_on_metadata(p, op, reply, now_us, wall_us, ret);
}
