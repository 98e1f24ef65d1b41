/* fake_ec2_fleet.c - has launch templates, and makes fleets of type instant for one instance: the cheapest pool that
 * has one, of the types and zones that the request names. */
#include "base/core/base64.h"
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/date.h"
#include "tests/fakes/cloud/fake_ec2_answer.h"

#include <stdio.h>

#define OVERRIDES_MAX 64
#define USER_DATA_MAX 16384
#define CONFIG "LaunchTemplateConfigs.1."

/* ---- templates ---- */

static struct ec2_template *find(struct fake_ec2 *e, struct str name)
{
    for (uint32_t i = 0; i < e->template_count; i++)
        if (str_eq(str_from(e->template[i].name), name)) return &e->template[i];
    return NULL;
}

void fake_ec2_create_template(struct ec2_answer *a)
{
    static const char data[] = "LaunchTemplateData.";
    static const char *const names[] = {
        "ClientToken",
        "LaunchTemplateName",
        "LaunchTemplateData.ImageId",
        "LaunchTemplateData.KeyName",
        "LaunchTemplateData.InstanceInitiatedShutdownBehavior",
        "LaunchTemplateData.MetadataOptions.HttpTokens",
        "LaunchTemplateData.IamInstanceProfile.Name",
        "LaunchTemplateData.IamInstanceProfile.Arn",
        "LaunchTemplateData.NetworkInterface.#.DeviceIndex",
        "LaunchTemplateData.NetworkInterface.#.AssociatePublicIpAddress",
        "LaunchTemplateData.NetworkInterface.#.SecurityGroupId.#",
        "LaunchTemplateData.BlockDeviceMapping.#.DeviceName",
        "LaunchTemplateData.BlockDeviceMapping.#.Ebs.VolumeSize",
        "LaunchTemplateData.BlockDeviceMapping.#.Ebs.VolumeType",
        "LaunchTemplateData.BlockDeviceMapping.#.Ebs.DeleteOnTermination",
        "TagSpecification.#.ResourceType",
        "TagSpecification.#.Tag.#.Key",
        "TagSpecification.#.Tag.#.Value",
        NULL,
    };
    struct fake_ec2 *e = a->e;
    struct str name = fake_ec2_get(a, "LaunchTemplateName");
    bool has_data = false;
    if (!fake_ec2_check_names(a, names)) return;
    for (uint32_t i = 0; i < a->p.count; i++)
        has_data = has_data || str_starts(a->p.name[i], str_from(data));
    if (name.len < 3 || name.len > 128 || !has_data) {
        fake_ec2_refuse_form(a, "MissingParameter", "LaunchTemplateName and LaunchTemplateData");
        return;
    }
    if (a->e->no_fleets) {
        fake_ec2_refuse(a, 403, "UnauthorizedOperation", "not authorized for this operation");
        return;
    }
    if (find(e, name)) {
        fake_ec2_refuse(a, 400, "InvalidLaunchTemplateName.AlreadyExistsException", "it is in use");
        return;
    }
    must(e->template_count < EC2_TEMPLATES_MAX);
    struct ec2_template *t = &e->template[e->template_count++];
    *t = (struct ec2_template){ .id = ++e->template_last, .made_us = a->now_us };
    snprintf(t->name, sizeof t->name, STR_FMT, STR_ARG(name));
    if (str_eq(fake_ec2_get(a, "TagSpecification.1.ResourceType"), STR("launch-template")))
        snprintf(t->fleet, sizeof t->fleet, "%s",
                 fake_ec2_text(a, "TagSpecification.1.Tag.1.Value"));
    fake_ec2_begin(a, "CreateLaunchTemplate");
    buf_text(&a->out.body, "<launchTemplate>");
    fake_ec2_put(a, "launchTemplateName", t->name);
    buf_text(&a->out.body, "</launchTemplate>");
    fake_ec2_end(a, "CreateLaunchTemplate");
}

void fake_ec2_list_templates(struct ec2_answer *a)
{
    static const char *const names[] = { "Filter.#.Name", "Filter.#.Value.#", "MaxResults",
                                         "NextToken", NULL };
    if (!fake_ec2_check_names(a, names)) return;
    fake_ec2_begin(a, "DescribeLaunchTemplates");
    buf_text(&a->out.body, "<launchTemplates>");
    for (uint32_t i = 0; i < a->e->template_count; i++) {
        const struct ec2_template *t = &a->e->template[i];
        char date[DATE_BYTES], id[32];
        bool ours = str_eq(fake_ec2_get(a, "Filter.1.Name"), STR("tag:muster-fleet"));
        if (ours && !str_eq(fake_ec2_get(a, "Filter.1.Value.1"), str_from(t->fleet))) continue;
        date_print(t->made_us + a->e->aws.date_us, date);
        snprintf(id, sizeof id, "lt-%llu", (unsigned long long)t->id);
        buf_text(&a->out.body, "<item>");
        fake_ec2_put(a, "launchTemplateId", id);
        fake_ec2_put(a, "launchTemplateName", t->name);
        fake_ec2_put(a, "createTime", date);
        buf_text(&a->out.body, "</item>");
    }
    buf_text(&a->out.body, "</launchTemplates>");
    fake_ec2_end(a, "DescribeLaunchTemplates");
}

void fake_ec2_drop_template(struct ec2_answer *a)
{
    static const char *const names[] = { "LaunchTemplateId", NULL };
    struct fake_ec2 *e = a->e;
    if (!fake_ec2_check_names(a, names)) return;
    for (uint32_t i = 0; i < e->template_count; i++) {
        char id[32];
        snprintf(id, sizeof id, "lt-%llu", (unsigned long long)e->template[i].id);
        if (!str_eq(fake_ec2_get(a, "LaunchTemplateId"), str_from(id))) continue;
        e->template[i] = e->template[--e->template_count];
        fake_ec2_begin(a, "DeleteLaunchTemplate");
        fake_ec2_end(a, "DeleteLaunchTemplate");
        return;
    }
    fake_ec2_refuse(a, 400, "InvalidLaunchTemplateId.NotFound", "there is no such template");
}

/* ---- fleets ---- */

/* A type in a zone, as the request names it. */
struct fleet_pool {
    char type[FLEET_TEXT];
    const char *zone;
    double price;
};

static const char *const fleet_names[] = {
    "ClientToken",
    "Type",
    "SpotOptions.AllocationStrategy",
    "OnDemandOptions.AllocationStrategy",
    "TargetCapacitySpecification.TotalTargetCapacity",
    "TargetCapacitySpecification.DefaultTargetCapacityType",
    CONFIG "LaunchTemplateSpecification.LaunchTemplateId",
    CONFIG "LaunchTemplateSpecification.LaunchTemplateName",
    CONFIG "LaunchTemplateSpecification.Version",
    CONFIG "LaunchTemplateSpecification.LaunchTemplateSpecificationUserData",
    CONFIG "Overrides.#.InstanceType",
    CONFIG "Overrides.#.ImageId",
    CONFIG "Overrides.#.SubnetId",
    CONFIG "Overrides.#.AvailabilityZone",
    CONFIG "Overrides.#.MaxPrice",
    "TagSpecification.#.ResourceType",
    "TagSpecification.#.Tag.#.Key",
    "TagSpecification.#.Tag.#.Value",
    NULL,
};

static double price_of(const struct ec2_answer *a, const struct fleet_pool *p, bool spot)
{
    const struct fleet_config *c = &a->fleet->config;
    for (uint32_t i = 0; i < c->type_count; i++)
        for (uint32_t z = 0; z < c->zone_count; z++) {
            if (strcmp(c->type[i].name, p->type) != 0 || c->zone[z] != p->zone) continue;
            return spot ? (double)c->type[i].spot_udollars_h * (1 + 0.1 * z)
                        : (double)c->type[i].price_udollars_h;
        }
    return 1e12; /* nobody has it: the last that is tried */
}

/* Reads the pools, the cheapest first, as written among equals. */
static uint32_t read_pools(struct ec2_answer *a, bool spot, struct fleet_pool ret[OVERRIDES_MAX])
{
    uint32_t count = 0;
    for (int i = 1; i <= OVERRIDES_MAX; i++) {
        struct str type = fake_ec2_get_n(a, CONFIG "Overrides.#.InstanceType", i);
        if (!type.data) break;
        struct fleet_pool p = { .zone = fake_ec2_zone_of(
                                    a, fake_ec2_get_n(a, CONFIG "Overrides.#.AvailabilityZone", i),
                                    fake_ec2_get_n(a, CONFIG "Overrides.#.SubnetId", i)) };
        snprintf(p.type, sizeof p.type, STR_FMT, STR_ARG(type));
        p.price = price_of(a, &p, spot);
        uint32_t at = count++;
        for (; at > 0 && ret[at - 1].price > p.price; at--)
            ret[at] = ret[at - 1];
        ret[at] = p;
    }
    return count;
}

/* NULL: the form is as the API wants it. */
static const char *bad_form(struct ec2_answer *a, bool spot, struct str user_data)
{
    struct str kind = fake_ec2_get(a, "TargetCapacitySpecification.DefaultTargetCapacityType");
    if (!str_eq(fake_ec2_get(a, "Type"), STR("instant"))) return "the fake makes fleets at once";
    if (!str_eq(fake_ec2_get(a, "TargetCapacitySpecification.TotalTargetCapacity"), STR("1")))
        return "the fake makes fleets of one";
    if (!spot && !str_eq(kind, STR("on-demand"))) return "DefaultTargetCapacityType";
    if (!fake_ec2_get(a, CONFIG "LaunchTemplateSpecification.Version").len)
        return "Version is needed";
    if (user_data.len > USER_DATA_MAX) return "user data is longer than 16384 bytes";
    if (fake_ec2_get(a,
                     spot ? "OnDemandOptions.AllocationStrategy" : "SpotOptions.AllocationStrategy")
            .data)
        return "a strategy of the other purchase";
    for (int i = 1; i <= OVERRIDES_MAX; i++)
        if (fake_ec2_get_n(a, CONFIG "Overrides.#.SubnetId", i).data &&
            fake_ec2_get_n(a, CONFIG "Overrides.#.AvailabilityZone", i).data)
            return "a subnet has its zone";
    return NULL;
}

static void put_error(struct buf *errors, const struct fleet_pool *p, const char *code)
{
    buf_printf(errors,
               "<item><launchTemplateAndOverrides><overrides><instanceType>%s</instanceType>"
               "</overrides></launchTemplateAndOverrides><errorCode>%s</errorCode>"
               "<errorMessage>no %s here</errorMessage></item>",
               p->type, code, p->type);
}

static void answer(struct ec2_answer *a, const struct fleet_machine *m, struct str errors)
{
    char id[24];
    struct buf *out = &a->out.body;
    fake_ec2_begin(a, "CreateFleet");
    buf_text(out, "<fleetId>fleet-1</fleetId><errorSet>");
    buf_str(out, errors);
    buf_text(out, "</errorSet><fleetInstanceSet>");
    if (m) {
        fake_ec2_id_of(m, id);
        buf_text(out, "<item><launchTemplateAndOverrides><overrides>");
        fake_ec2_put(a, "availabilityZone", m->zone);
        buf_text(out, "</overrides></launchTemplateAndOverrides>");
        fake_ec2_put(a, "lifecycle", m->spot ? "spot" : "on-demand");
        buf_printf(out, "<instanceIds><item>%s</item></instanceIds>", id);
        fake_ec2_put(a, "instanceType", m->type);
        buf_text(out, "</item>");
    }
    buf_text(out, "</fleetInstanceSet>");
    fake_ec2_end(a, "CreateFleet");
}

/* Goes through the pools until one has an instance. */
static void try_pools(struct ec2_answer *a, struct fleet_order *o, const struct fleet_pool *pool,
                      uint32_t count)
{
    CLEANUP(buf_fini) struct buf errors = { 0 };
    struct fleet_machine *m = NULL;
    for (uint32_t i = 0; i < count && !m; i++) {
        a->row = fake_fleet_meet(a->fleet, FLEET_CREATE, pool[i].type, pool[i].zone, a->now_us);
        enum fleet_fault fault = a->row ? a->row->fault : FLEET_FINE;
        if (fault == FLEET_STOCK_OUT || fault == FLEET_QUOTA || fault == FLEET_UNKNOWN_CODE) {
            put_error(&errors, &pool[i], fake_ec2_code_of(fault));
            a->row = NULL;
            continue;
        }
        if (fake_ec2_refuse_fault(a)) return;
        o->type = pool[i].type;
        o->zone = pool[i].zone;
        if (fake_ec2_make(a, o, &m)) break;
        if (fault == FLEET_LOST_REQUEST || fault == FLEET_UNREACHABLE) return;
        put_error(&errors, &pool[i], fake_ec2_code_of(FLEET_STOCK_OUT));
    }
    answer(a, m, buf_view(&errors));
    if (m) return;
    struct ec2_refused *r = &a->e->refused[a->e->refused_next++ % EC2_REFUSED_MAX];
    snprintf(r->token, sizeof r->token, "%s", fake_ec2_text(a, "ClientToken"));
    snprintf(r->errors, sizeof r->errors, "%s", errors.len > 0 ? errors.data : "");
    if (errors.len >= sizeof r->errors) /* one error says enough */
        r->errors[str_find(buf_view(&errors), STR("</item>")) + 7] = 0;
}

void fake_ec2_create_fleet(struct ec2_answer *a)
{
    CLEANUP(buf_fini) struct buf user_data = { 0 };
    struct fleet_tag tag[FLEET_TAGS_MAX];
    struct fleet_pool pool[OVERRIDES_MAX];
    char key[FLEET_TEXT];
    bool spot = str_eq(fake_ec2_get(a, "TargetCapacitySpecification.DefaultTargetCapacityType"),
                       STR("spot"));
    if (!fake_ec2_check_names(a, fleet_names)) return;
    struct str data =
        fake_ec2_get(a, CONFIG "LaunchTemplateSpecification.LaunchTemplateSpecificationUserData");
    const char *bad = base64_take(&user_data, data) < 0 ? "user data is no base64" : NULL;
    if (!bad) bad = bad_form(a, spot, buf_view(&user_data));
    if (bad) {
        fake_ec2_refuse_form(a, "InvalidParameterValue", bad);
        return;
    }
    if (a->e->no_fleets) {
        fake_ec2_refuse(a, 403, "UnauthorizedOperation", "not authorized for this operation");
        return;
    }
    struct str id = fake_ec2_get(a, CONFIG "LaunchTemplateSpecification.LaunchTemplateId");
    struct str of_name = fake_ec2_get(a, CONFIG "LaunchTemplateSpecification.LaunchTemplateName");
    bool users = id.data || str_eq(of_name, STR(EC2_USER_TEMPLATE_NAME));
    if (users && fake_ec2_lacks_template(a, CONFIG "LaunchTemplateSpecification")) return;
    if (!users && !find(a->e, of_name)) {
        fake_ec2_refuse(a, 400, "InvalidLaunchTemplateName.NotFoundException", "no such template");
        return;
    }
    for (uint32_t i = 0; i < EC2_REFUSED_MAX; i++) {
        const struct ec2_refused *r = &a->e->refused[i];
        if (!r->token[0] || !str_eq(fake_ec2_get(a, "ClientToken"), str_from(r->token))) continue;
        answer(a, NULL, str_from(r->errors));
        return;
    }
    uint32_t count = read_pools(a, spot, pool);
    snprintf(key, sizeof key, "fleet/%s", fake_ec2_text(a, "ClientToken"));
    struct fleet_order order = {
        .name = fake_ec2_text(a, "TagSpecification.1.Tag.1.Value"),
        .key = key,
        .image = !users ? "ami-0123456789abcdef0"
                 : fake_ec2_get(a, CONFIG "Overrides.1.ImageId").len > 0
                     ? fake_ec2_text(a, CONFIG "Overrides.1.ImageId")
                     : EC2_USER_IMAGE,
        .user_data = user_data.data,
        .spot = spot,
        .tag = tag,
        .tag_count = fake_ec2_read_tags(a, tag),
    };
    if (order.tag_count > 0) a->e->actions |= 1u << TAG_AT_CREATE;
    try_pools(a, &order, pool, count);
}
