/* web_section.c - declares the settings of clouds that are reached over HTTP, and checks what needs two of them or
 * a file. */
#include "controller/cloud/web/web_section.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/net/addr.h"
#include "base/perf/hardware.h"
#include "controller/cloud/cloud_adopted.h"
#include "controller/cloud/offer_rows.h"
#include "controller/cloud/web/web_container.h"
#include "controller/cloud/web/web_step.h"
#include "controller/cloud/web/web_user_data.h"

#include <stdlib.h>
#include <string.h>

#define IN(type, member) .offset = offsetof(struct type, member)
#define NAME .min = 1, .max = NAME_BYTES - 1
#define TEMPLATE_BYTES_MAX ((size_t)64 << 10)

// clang-format off
static const struct config_field offer_rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(web_offer_section, name),
      .about = "Name of the offer." },
    { .name = "type", .type = CONFIG_TEXT, .required = true, .min = 1, .max = 127,
      IN(web_offer_section, type), .about = "Type of machine, as the provider names it." },
    { .name = "types", .type = CONFIG_TEXTS, .min = 0, .max = WEB_TYPES_MAX,
      IN(web_offer_section, types),
      .about = "Further types that do as well: the provider chooses among all of them and the zones; none: `type` "
               "alone." },
    { .name = "hardware", .type = CONFIG_TEXT, .default_text = "", .max = NAME_BYTES - 1,
      IN(web_offer_section, hardware),
      .about = "What an instance computes with, as `muster offers` names it: `muster plan --clouds` then knows how "
               "fast it is; empty: not said." },
    { .name = "zones", .type = CONFIG_TEXTS, .min = 0, .max = WEB_ZONES_MAX,
      IN(web_offer_section, zones),
      .about = "Zones, or locations, that sell it, tried in this order; none: what the cloud's kind says." },
    { .name = "spot", .type = CONFIG_BOOL, .default_text = "false", IN(web_offer_section, spot),
      .about = "The provider may take instances of this offer away." },
    { .name = "price_per_hour", .type = CONFIG_FLOAT, .default_text = "-1", .min = -1, .max = 1e4,
      .unit = "dollars", IN(web_offer_section, price_h),
      .about = "What an instance costs; below 0: what the provider says." },
    { .name = "reserved", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 1024,
      .unit = "instances", IN(web_offer_section, reserved),
      .about = "Instances of it that are paid for whether they run or not, by a commitment or a reservation: they are "
               "used first, cost a service nothing more, and stand in the bill with their price at all times." },
    { .name = "disk_price_per_hour", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e4,
      .unit = "dollars", IN(web_offer_section, disk_price_h),
      .about = "What the disk of an instance costs, where the price of the machine does not have it." },
    { .name = "pull", .type = CONFIG_BYTES, .default_text = "0", .min = 0, .max = 1e15,
      IN(web_offer_section, pull_bytes),
      .about = "What an instance fetches when it starts: weights and image." },
    { .name = "pull_price_per_gb", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e3,
      .unit = "dollars", IN(web_offer_section, pull_price_gb),
      .about = "What a GB of it costs to move, egress of where it lies included; each start is priced by it." },
    { .name = "spot_price_max", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e4,
      .unit = "dollars", IN(web_offer_section, spot_price_max_h),
      .about = "spot: the most to pay for an hour, where the provider takes a bid; 0: its price on demand." },
    { .name = "capacity_reservation", .type = CONFIG_TEXT, .default_text = "", .max = 127,
      IN(web_offer_section, capacity_reservation),
      .about = "Reserved capacity that its instances use up, by the provider's id; empty: none." },
    { .name = "gpus", .type = CONFIG_INT, .default_text = "0", .min = 0, .max = 64, .unit = "GPUs",
      IN(web_offer_section, gpus),
      .about = "GPUs to ask for, where the provider sells them apart from the type; else what it has." },
    { .name = "gpu_type", .type = CONFIG_TEXT, .default_text = "", .max = 63,
      IN(web_offer_section, gpu_type),
      .about = "Type of GPUs to attach, where the provider sells them apart from the type; empty: none." },
    { .name = "lead", .type = CONFIG_DURATION, .default_text = "3m", .min = 0, .max = 36e8,
      IN(web_offer_section, lead_us),
      .about = "First guess of the time from the order to readiness, boot and model included; learned from "
               "launches." },
    OFFER_PRIOR_ROWS(struct web_offer_section),
};
static const struct config_record offer_record =
    CONFIG_LIST_OF(struct web_offer_section, offer_rows, "name");

static const struct config_field rows[] = {
    { .name = "name", .type = CONFIG_TEXT, .required = true, NAME, IN(web_section, name),
      .about = "Name of the cloud, as pools have it in `provider`." },
    { .name = "kind", .type = CONFIG_ENUM, .required = true, .names = web_kind_names,
      IN(web_section, kind), .about = "Whose API it speaks (docs/clouds)." },
    { .name = "endpoint", .type = CONFIG_TEXT, .default_text = "", IN(web_section, endpoint),
      .about = "URL of the API; empty: the provider's own." },
    { .name = "fleet", .type = CONFIG_TEXT, .default_text = "muster", .min = 1, .max = 40,
      IN(web_section, fleet),
      .about = "Tag that tells this fleet's machines from others of the account; lower-case letters, digits "
               "and -." },
    { .name = "credentials_file", .type = CONFIG_TEXT, .default_text = "",
      IN(web_section, credentials_file),
      .about = "File with the credentials in the provider's own form, which nobody else may read." },
    { .name = "credentials_env", .type = CONFIG_TEXT, .default_text = "", .max = 127,
      IN(web_section, credentials_env),
      .about = "Variable of the environment with the credentials, where no file is named; empty: the "
               "provider's usual one." },
    { .name = "profile", .type = CONFIG_TEXT, .default_text = "", IN(web_section, profile),
      .about = "Part of the credentials file to use." },
    { .name = "region", .type = CONFIG_TEXT, .default_text = "", .max = 63, IN(web_section, region),
      .about = "Region of the API and of the offers." },
    { .name = "project", .type = CONFIG_TEXT, .default_text = "", .max = 127,
      IN(web_section, project), .about = "Project, or subscription, that machines are made in." },
    { .name = "group", .type = CONFIG_TEXT, .default_text = "", .max = 127, IN(web_section, group),
      .about = "Group of resources that machines are made in." },
    { .name = "tenant", .type = CONFIG_TEXT, .default_text = "", .max = 127,
      IN(web_section, tenant), .about = "Directory, or domain, that the account belongs to." },
    { .name = "account", .type = CONFIG_TEXT, .default_text = "", .max = 255,
      IN(web_section, account),
      .about = "Account, or role, that machines run as; empty: none." },
    { .name = "image", .type = CONFIG_TEXT, .default_text = "", .max = 511, IN(web_section, image),
      .about = "Image that machines boot." },
    { .name = "launch_template", .type = CONFIG_TEXT, .default_text = "", .max = 255,
      IN(web_section, launch_template),
      .about = "Launch template of yours that machines are made from; settings here replace its own. ec2: id or name, with "
               ":VERSION; gce: name or URL of an instance template. Empty: none." },
    { .name = "networks", .type = CONFIG_TEXTS, .min = 0, .max = 16, IN(web_section, networks),
      .about = "Networks, or subnets, that machines are in." },
    { .name = "firewalls", .type = CONFIG_TEXTS, .min = 0, .max = 16, IN(web_section, firewalls),
      .about = "Firewalls, or security groups, before machines." },
    { .name = "ssh_keys", .type = CONFIG_TEXTS, .min = 0, .max = 16, IN(web_section, ssh_keys),
      .about = "Keys that open a shell on machines, by the provider's names; none: no key." },
    { .name = "disk", .type = CONFIG_BYTES, .default_text = "0", .min = 0, .max = 1e15,
      IN(web_section, disk_bytes), .about = "Size of a machine's disk; 0: the provider's default." },
    { .name = "public_address", .type = CONFIG_BOOL, .default_text = "true",
      IN(web_section, public_address),
      .about = "Machines get an IPv4 address of the internet." },
    { .name = "exchange_rates", .type = CONFIG_TEXTS, .min = 0, .max = WEB_RATES_MAX,
      IN(web_section, exchange_rates),
      .about = "Dollars for one unit of a currency: EUR=1.08. A price in a currency without a rate is not "
               "known." },
    { .name = "user_data", .type = CONFIG_TEXT, .default_text = "", IN(web_section, user_data),
      .about = "File with what a machine runs at its first boot, as a template (docs/clouds); empty: a shell "
               "script of ours." },
    { .name = "muster_url", .type = CONFIG_TEXT, .default_text = "", .max = 1023,
      IN(web_section, muster_url),
      .about = "https:// URL from which a machine fetches muster at its first boot, the program or a .deb; "
               "empty: its image has it." },
    { .name = "muster_sha256", .type = CONFIG_TEXT, .default_text = "", .max = 64,
      IN(web_section, muster_sha256), .about = "SHA-256 of what `muster_url` gives; needed with it." },
    { .name = "program", .type = CONFIG_TEXTS, .min = 0, .max = WEB_WORDS_MAX, IN(web_section, program),
      .about = "Program that makes the calls, by its absolute path, and its arguments." },
    { .name = "environment", .type = CONFIG_TEXTS, .min = 0, .max = WEB_WORDS_MAX,
      IN(web_section, environment),
      .about = "Variables of the controller's environment that the program gets; it gets no others." },
    { .name = "timeout", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 9e7,
      IN(web_section, timeout_us),
      .about = "Longest time for one call of the program, or one request to the server; 0: as the kind has it." },
    { .name = "lag", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 36e8,
      IN(web_section, lag_us),
      .about = "How long an instance that was made may be missing from listings; 0: as the kind has it." },
    { .name = "poll", .type = CONFIG_DURATION, .default_text = "0", .min = 0, .max = 36e8,
      IN(web_section, poll_us),
      .about = "Time between two listings of instances; after a call of ours one comes sooner. 0: as the kind "
               "has it." },
    { .name = "calls_per_s", .type = CONFIG_FLOAT, .default_text = "0", .min = 0, .max = 1e4,
      .unit = "calls/s", IN(web_section, calls_per_s),
      .about = "Budget of requests to the API; 0: as the kind has it." },
    { .name = "offers", .type = CONFIG_RECORDS, .required = true, .min = 1, .max = CLOUD_PRICES_MAX,
      .record = &offer_record, IN(web_section, offers), .about = "What to buy there." },
};
// clang-format on
static const struct config_record record = CONFIG_LIST_OF(struct web_section, rows, "name");

const struct config_section clouds_section = {
    .name = "clouds",
    .about =
        "Providers of machines, reached over HTTP or with a program; an instance is a machine.",
    .record = &record,
    .list = true,
};

/* ---- settings that only some kinds read ---- */

static bool is_listed(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* The rows that every kind reads. */
static const char *const common[] = {
    "name",
    "kind",
    "endpoint",
    "fleet",
    "exchange_rates",
    "user_data",
    "muster_url",
    "muster_sha256",
    "poll",
    "calls_per_s",
    "offers",
    "credentials_file",
    "credentials_env",
    NULL,
};

/* Returns true if the row has another value than its default. */
static bool is_set(const struct web_section *s, const struct config_field *f)
{
    const void *at = (const char *)s + f->offset;
    if (f->type == CONFIG_TEXT) return ((const struct str *)at)->len > 0;
    if (f->type == CONFIG_TEXTS) return ((const struct config_texts *)at)->count > 0;
    if (f->type == CONFIG_BYTES || f->type == CONFIG_DURATION) return *(const int64_t *)at != 0;
    must(f->type == CONFIG_BOOL);
    return !*(const bool *)at; /* their default is true */
}

static int check_rows(const struct web_section *s, const struct web_kind *kind, struct err *err)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        const struct config_field *f = &rows[i];
        if (is_listed(common, f->name)) continue;
        if (!is_listed(kind->takes, f->name) && is_set(s, f))
            return err_set(err, -EINVAL, "%s: kind %s reads no such setting", f->name, kind->name);
        if (is_listed(kind->wants, f->name) && !is_set(s, f))
            return err_set(err, -EINVAL, "%s: kind %s needs it", f->name, kind->name);
    }
    return 0;
}

/* ---- offers ---- */

/* Rows of an offer that only some kinds read; they name them as offers.ROW. */
static int check_offer(const struct web_kind *kind, const struct web_offer_section *from,
                       struct err *err)
{
    const struct {
        const char *name;
        bool is_set;
    } own[] = {
        { "offers.spot", from->spot },
        { "offers.spot_price_max", from->spot_price_max_h > 0 },
        { "offers.capacity_reservation", from->capacity_reservation.len > 0 },
        { "offers.gpus", from->gpus > 0 },
        { "offers.gpu_type", from->gpu_type.len > 0 },
        { "offers.zones", from->zones.count > 0 },
        { "offers.types", from->types.count > 0 },
    };
    for (size_t i = 0; i < COUNT_OF(own); i++)
        if (own[i].is_set && !is_listed(kind->takes, own[i].name))
            return err_set(err, -EINVAL, "%s: kind %s reads no such setting",
                           own[i].name + strlen("offers."), kind->name);
    if (from->gpu_type.len > 0 && from->gpus == 0)
        return err_set(err, -EINVAL, "gpu_type: how many is said by gpus");
    if (from->hardware.len > 0 && !hardware_find(from->hardware)) {
        hardware_unknown(from->hardware, err);
        return err_prefix(err, -EINVAL, "hardware");
    }
    if (from->spot && from->reserved > 0)
        return err_set(err, -EINVAL, "reserved: it is spot, which may be taken away");
    if (!from->spot && from->spot_price_max_h > 0)
        return err_set(err, -EINVAL, "spot_price_max: it is not spot");
    return 0;
}

static int make_offer(const struct web_settings *s, const struct web_offer_section *from,
                      struct web_offer *ret, struct err *err)
{
    const double perf[] = { from->perf_step_s, from->perf_prefill_s, from->perf_decode_s,
                            from->perf_read_s };
    *ret = (struct web_offer){ .section = from,
                               .type = from->type,
                               .zone = from->zones.items,
                               .zone_count = (uint32_t)from->zones.count,
                               .price_given = from->price_h >= 0 };
    struct offer *o = &ret->offer;
    *o = (struct offer){ .price_h = from->price_h > 0 ? from->price_h : 0,
                         .price_known = ret->price_given,
                         .billing = s->kind->billing,
                         .spot = from->spot,
                         .reserved = (uint32_t)from->reserved,
                         .disk_h = from->disk_price_h,
                         .start_usd = from->pull_price_gb * (double)from->pull_bytes / 1e9,
                         .stops = s->kind->stops && !from->spot,
                         .lead_s = (double)from->lead_us / 1e6,
                         .seqs_max = (uint32_t)from->max_num_seqs,
                         .sold = hardware_find(from->hardware),
                         .has_prior = perf[0] > 0 || perf[1] > 0 || perf[2] > 0 || perf[3] > 0,
                         .prior = { .step_s = perf[0],
                                    .prefill_token_s = perf[1],
                                    .decode_seq_s = perf[2],
                                    .kv_read_s = perf[3] } };
    must(name_copy(o->name, sizeof o->name, from->name) == 0); /* the schema bounds it */
    must(name_copy(o->provider, sizeof o->provider, s->name) == 0);
    web_text_copy(o->hardware, sizeof o->hardware, from->type);
    int rc = check_offer(s->kind, from, err);
    if (rc < 0) return err_prefix(err, rc, "offer %s", o->name);
    /* Losses come together in a zone; an offer of several counts as one of the region. */
    struct str zone = ret->zone_count == 1 ? ret->zone[0] : s->section->region;
    if (name_copy(o->zone, sizeof o->zone, zone) < 0)
        return err_set(err, -EINVAL, "offer %s: zones: '" STR_FMT "' is too long", o->name,
                       STR_ARG(zone));
    return 0;
}

const struct web_offer *web_settings_offer(const struct web_settings *s, struct str name)
{
    for (uint32_t i = 0; i < s->offer_count; i++)
        if (str_eq(str_from(s->offer[i].offer.name), name)) return &s->offer[i];
    return NULL;
}

/* ---- prices ---- */

static int read_rates(const struct config_texts *texts, struct web_settings *ret, struct err *err)
{
    for (size_t i = 0; i < texts->count; i++) {
        struct web_rate *r = &ret->rate[ret->rate_count];
        struct str value = texts->items[i], currency = str_cut(&value, '=');
        if (currency.len != 3 || str_to_f64(value, &r->dollars) < 0 || !(r->dollars > 0))
            return err_set(err, -EINVAL,
                           "exchange_rates: '" STR_FMT "': want CURRENCY=DOLLARS, EUR=1.08",
                           STR_ARG(texts->items[i]));
        web_text_copy(r->currency, sizeof r->currency, currency);
        ret->rate_count++;
    }
    return 0;
}

bool web_dollars(const struct web_settings *s, struct str currency, double price, double *ret)
{
    double rate = str_eq(currency, STR("USD")) ? 1 : 0;
    for (uint32_t i = 0; i < s->rate_count; i++)
        if (str_eq(str_from(s->rate[i].currency), currency)) rate = s->rate[i].dollars;
    if (!(rate > 0) || !(price >= 0)) return false;
    *ret = price * rate;
    return true;
}

/* ---- boot ---- */

static bool is_url(struct str s)
{
    if (!str_starts(s, STR("https://")) && !str_starts(s, STR("http://"))) return false;
    for (size_t i = 0; i < s.len; i++) /* it stands between quotes in a shell script */
        if (s.data[i] <= ' ' || strchr("'\"\\$`", s.data[i])) return false;
    return true;
}

static int check_binary(const struct web_section *s, struct err *err)
{
    uint8_t digest[SHA256_BYTES];
    if (s->muster_url.len == 0 && s->muster_sha256.len == 0) return 0;
    if (!is_url(s->muster_url))
        return err_set(err, -EINVAL, "muster_url: want https://... without quotes and blanks");
    if (hex_to(s->muster_sha256, digest, sizeof digest) < 0)
        return err_set(err, -EINVAL,
                       "muster_sha256: want 64 hexadecimal digits: a machine runs what it fetches");
    return 0;
}

static int read_template(const struct web_section *s, struct arena *arena, struct str *ret,
                         struct err *err)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    *ret = web_kinds[s->kind]->is_container ? web_user_data_container : web_user_data_default;
    if (s->user_data.len == 0) return 0;
    int rc = file_read(s->user_data.data, TEMPLATE_BYTES_MAX, &text, err);
    if (rc < 0) return err_prefix(err, rc, "user_data");
    *ret = arena_str(arena, buf_view(&text));
    return ret->data ? 0 : err_set(err, -ENOMEM, "no memory for user_data");
}

/* ---- the whole ---- */

static int check_names(const struct web_section *s, struct err *err)
{
    static const char *const taken[] = { "local", "kubernetes", ADOPTED_NAME };
    for (size_t i = 0; i < COUNT_OF(taken); i++)
        if (str_eq(s->name, str_from(taken[i])))
            return err_set(err, -EINVAL, "name: %s is another provider's", taken[i]);
    for (size_t i = 0; i < s->fleet.len; i++) {
        char c = s->fleet.data[i];
        bool ends = i == 0 || i + 1 == s->fleet.len;
        if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && (ends || c != '-'))
            return err_set(err, -EINVAL,
                           "fleet: '" STR_FMT "': want lower-case letters, digits and -",
                           STR_ARG(s->fleet));
    }
    if (s->endpoint.len > 0 && !is_url(s->endpoint))
        return err_set(err, -EINVAL, "endpoint: '" STR_FMT "' is no URL", STR_ARG(s->endpoint));
    if (s->endpoint.len > 0 && !addr_url_is_private(s->endpoint))
        return err_set(err, -EINVAL,
                       "endpoint: '" STR_FMT
                       "': credentials go over https://, unless to this machine",
                       STR_ARG(s->endpoint));
    return 0;
}

static int make(const struct web_section *section, struct arena *arena, struct web_settings *s,
                struct err *err)
{
    const struct web_offer_section *from = section->offers.items;
    s->offer_count = (uint32_t)section->offers.count;
    s->offer = arena_array(arena, s->offer_count, sizeof *s->offer);
    if (!s->offer) return err_set(err, -ENOMEM, "no memory for offers");
    int rc = check_names(section, err);
    if (rc == 0) rc = check_rows(section, s->kind, err);
    if (rc == 0 && s->kind->check) rc = s->kind->check(s, err);
    if (rc == 0) rc = read_rates(&section->exchange_rates, s, err);
    if (rc == 0) rc = check_binary(section, err);
    if (rc == 0) rc = read_template(section, arena, &s->user_data, err);
    if (rc == 0) rc = web_user_data_check(s, err);
    for (uint32_t i = 0; i < s->offer_count && rc == 0; i++)
        rc = make_offer(s, &from[i], &s->offer[i], err);
    return rc;
}

int web_settings_make(const struct web_section *section, struct arena *arena,
                      struct web_settings *ret, struct err *err)
{
    const struct web_kind *kind = web_kinds[section->kind];
    struct str endpoint = section->endpoint.len > 0 ? section->endpoint : str_from(kind->endpoint);
    while (endpoint.len > 0 && endpoint.data[endpoint.len - 1] == '/')
        endpoint.len--;
    struct web_settings s = {
        .section = section,
        .kind = kind,
        .name = section->name,
        .endpoint = endpoint,
        .fleet = section->fleet,
        .timeout_us = section->timeout_us,
        .lag_us = section->lag_us > 0 ? section->lag_us : kind->lag_us,
        .poll_us = section->poll_us > 0 ? section->poll_us : kind->poll_us,
        .calls_per_s = section->calls_per_s > 0 ? section->calls_per_s : kind->calls_per_s,
    };
    int rc = make(section, arena, &s, err);
    if (rc < 0) return err_prefix(err, rc, "clouds: " STR_FMT, STR_ARG(section->name));
    *ret = s;
    return 0;
}

int web_settings_make_all(const struct web_section *sections, size_t count, struct arena *arena,
                          struct web_settings **ret, struct err *err)
{
    struct web_settings *all = arena_array(arena, count, sizeof *all);
    if (!all) return err_set(err, -ENOMEM, "no memory for clouds");
    if (count > WEB_CLOUDS_MAX)
        return err_set(err, -E2BIG, "clouds: %zu; %d at most", count, WEB_CLOUDS_MAX);
    for (size_t i = 0; i < count; i++) {
        int rc = web_settings_make(&sections[i], arena, &all[i], err);
        if (rc < 0) return rc;
    }
    *ret = all;
    return 0;
}
