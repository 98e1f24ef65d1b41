/* man.c - prints man(7): one page for the program, one a command, one for the configuration.
 *
 * Pages come from tables alone, so they cannot differ from --help. They hold no date: two builds of one release
 * give the same bytes. Lines are filled without adjustment and hyphenation, so that an option can be copied.
 */
#include "cli/docs/man.h"

#include "base/core/bits.h"
#include "base/core/own.h"

#include <stdio.h>

#define PAGE_NAME_MAX 96

/* ---- text ---- */

/* Characters that roff reads as something else, and how to get them. A minus, because a hyphen that was copied
 * is no option. */
static const char *escape_of(char c)
{
    switch (c) {
    case '\\':
        return "\\e";
    case '-':
        return "\\-";
    case '\'':
        return "\\(aq";
    case '`':
        return "\\(ga";
    case '^':
        return "\\(ha";
    case '~':
        return "\\(ti";
    default:
        return NULL;
    }
}

static void put_char(struct buf *out, char c, char next)
{
    const char *escape = escape_of(c);
    if (escape)
        buf_text(out, escape);
    else
        buf_byte(out, c);
    /* A long list without blanks may be broken behind its commas. */
    if ((c == ',' || c == '|') && next && next != ' ') buf_text(out, "\\:");
}

void man_text(struct buf *out, struct str text)
{
    bool code = false;
    if (text.len > 0 && text.data[0] == '.') buf_text(out, "\\&");
    for (size_t i = 0; i < text.len; i++) {
        struct str rest = str_of(text.data + i + 1, text.len - i - 1);
        if (text.data[i] == '`' && (code || memchr(rest.data, '`', rest.len))) {
            code = !code;
            buf_text(out, code ? "\\fB" : "\\fR");
        } else {
            put_char(out, text.data[i], rest.len > 0 ? rest.data[0] : 0);
        }
    }
}

static void bold(struct buf *out, const char *text)
{
    buf_text(out, "\\fB");
    for (; *text; text++)
        put_char(out, *text, 0);
    buf_text(out, "\\fR");
}

static void line(struct buf *out, const char *text)
{
    man_text(out, str_from(text));
    buf_byte(out, '\n');
}

static void end_paragraph(struct buf *paragraph, struct buf *out)
{
    if (paragraph->len == 0) return;
    buf_text(out, ".PP\n");
    man_text(out, str_trim(buf_view(paragraph)));
    buf_byte(out, '\n');
    buf_clear(paragraph);
}

/* Prints notes: blank lines part paragraphs, and lines that begin with a blank stay as they are. */
static void put_notes(struct buf *out, struct str text)
{
    CLEANUP(buf_fini) struct buf paragraph = { 0 };
    bool as_is = false;
    while (text.len > 0) {
        struct str one = str_cut(&text, '\n');
        bool indented = one.len > 0 && one.data[0] == ' ';
        if (indented != as_is) {
            end_paragraph(&paragraph, out);
            buf_text(out, indented ? ".PP\n.nf\n" : ".fi\n");
            as_is = indented;
        }
        if (indented) {
            man_text(out, one);
            buf_byte(out, '\n');
        } else if (one.len == 0) {
            end_paragraph(&paragraph, out);
        } else {
            buf_str(&paragraph, one);
            buf_byte(&paragraph, ' ');
        }
    }
    if (as_is) buf_text(out, ".fi\n");
    end_paragraph(&paragraph, out);
    if (paragraph.rc < 0) out->rc = paragraph.rc;
}

/* ---- parts of a page ---- */

static void upper(struct buf *out, const char *text)
{
    for (; *text; text++)
        put_char(out, *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text, 0);
}

/* Begins the page `name`, as muster\-plan; `about` has no full stop. */
static void begin(struct buf *out, const char *name, int section, const char *about)
{
    buf_text(out, ".\\\" Made by `muster docs man`; do not edit.\n.TH \"");
    upper(out, name);
    buf_printf(out, "\" \"%d\" \"\" \"Muster %s\" \"Muster Manual\"\n.nh\n.ad l\n.SH NAME\n",
               section, MUSTER_VERSION);
    man_text(out, str_from(name));
    buf_text(out, " \\- ");
    line(out, about);
}

static int put_option(void *ctx, const struct config_option *option)
{
    struct buf *out = ctx;
    buf_text(out, ".TP\n");
    if (option->field->letter) {
        bold(out, (char[]){ '-', option->field->letter, 0 });
        buf_text(out, ", ");
    }
    bold(out, option->flag);
    if (option->placeholder) buf_printf(out, " \\fI%s\\fR", option->placeholder);
    buf_byte(out, '\n');
    man_text(out, option->text);
    buf_byte(out, '\n');
    return out->rc;
}

static void put_synopsis(struct buf *out, const struct opt_command *usage)
{
    buf_text(out, ".SH SYNOPSIS\n");
    bold(out, usage->name);
    buf_text(out, " [\\fIoptions\\fR]");
    for (size_t i = 0; i < usage->positional_count; i++) {
        const struct opt_positional *row = &usage->positionals[i];
        buf_text(out, row->required ? " \\fI" : " [\\fI");
        man_text(out, str_from(row->name));
        buf_printf(out, "\\fR%s%s", row->many ? "..." : "", row->required ? "" : "]");
    }
    buf_byte(out, '\n');
}

static void put_arguments(struct buf *out, const struct opt_command *usage)
{
    if (usage->positional_count > 0) buf_text(out, ".SH ARGUMENTS\n");
    for (size_t i = 0; i < usage->positional_count; i++) {
        buf_text(out, ".TP\n\\fI");
        man_text(out, str_from(usage->positionals[i].name));
        buf_text(out, "\\fR\n");
        line(out, usage->positionals[i].about);
    }
}

static void put_exit_status(struct buf *out)
{
    static const struct {
        int status;
        const char *about;
    } rows[] = {
        { 0, "Done." },
        { EXIT_FAILED, "Failed; the reason is on standard error." },
        { EXIT_USAGE, "Called wrongly, or the configuration is not valid." },
        { 3, "Not ready (commands that look at a fleet)." },
        { EXIT_TIMED_OUT, "Timed out." },
    };
    buf_text(out, ".SH \"EXIT STATUS\"\n");
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        buf_printf(out, ".TP\n\\fB%d\\fR\n%s\n", rows[i].status, rows[i].about);
}

static void put_reference(struct buf *out, const char *name, int section, const char *between)
{
    bold(out, name);
    buf_printf(out, "(%d)%s\n", section, between);
}

/* ---- a command ---- */

struct pages {
    const struct command *const *commands;
    man_page_fn fn;
    void *ctx;
};

/* "muster plan layers" -> "muster-plan-layers" */
static void page_name(const char *command, char ret[PAGE_NAME_MAX])
{
    size_t len = min_size(strlen(command), PAGE_NAME_MAX - 1);
    for (size_t i = 0; i < len; i++)
        ret[i] = command[i];
    for (size_t i = 0; i < len; i++)
        if (ret[i] == ' ') ret[i] = '-';
    ret[len] = 0;
}

static int give(const struct pages *p, const char *name, int section, const struct buf *text)
{
    char file[PAGE_NAME_MAX + 4];
    if (text->rc < 0) return text->rc;
    snprintf(file, sizeof file, "%s.%d", name, section);
    return p->fn(p->ctx, file, buf_view(text));
}

static void put_options(struct buf *out, const struct opt_command *usage)
{
    buf_text(out, ".SH OPTIONS\n");
    if (usage->options) (void)config_options_each(usage->options, put_option, out);
    buf_text(out, ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nShow the options and exit.\n");
    if (!usage->section) return;
    buf_text(out, ".SH CONFIGURATION\nThese options set values of section \\fB");
    man_text(out, str_from(usage->section->name));
    buf_text(out, "\\fR of the file, which\n");
    put_reference(out, "muster.yaml", 5, " describes. An option comes before the environment");
    buf_text(out, "(\\fBMUSTER_\\fISECTION\\fB_\\fIKEY\\fR), and that before the file.\n");
    (void)config_options_each(usage->section->record, put_option, out);
}

static int put_command(void *ctx, const struct command *command, const struct opt_command *usage)
{
    const struct pages *p = ctx;
    CLEANUP(buf_fini) struct buf out = { 0 };
    CLEANUP(buf_fini) struct buf about = { 0 };
    char name[PAGE_NAME_MAX], whole[64];
    page_name(usage->name, name);
    snprintf(whole, sizeof whole, "muster %s", command->name);
    /* A command below another has no line of its own in `muster --help`: its sentence stands in. */
    bool below = strcmp(usage->name, whole) != 0;
    buf_text(&about, below ? usage->about : command->about);
    if (below && about.len > 0 && about.data[about.len - 1] == '.') about.data[about.len - 1] = 0;
    if (about.rc < 0) return about.rc;

    begin(&out, name, 1, about.data);
    put_synopsis(&out, usage);
    buf_text(&out, ".SH DESCRIPTION\n");
    line(&out, usage->about);
    if (usage->notes) put_notes(&out, str_from(usage->notes));
    put_arguments(&out, usage);
    put_options(&out, usage);
    put_exit_status(&out);
    buf_text(&out, ".SH \"SEE ALSO\"\n");
    put_reference(&out, "muster", 1, ",");
    for (size_t i = 0; !below && command->below && command->below[i]; i++) {
        char other[PAGE_NAME_MAX + 32];
        snprintf(other, sizeof other, "%s-%s", name, command->below[i]);
        put_reference(&out, other, 1, ",");
    }
    put_reference(&out, "muster.yaml", 5, "");
    return give(p, name, 1, &out);
}

/* ---- the program ---- */

static const char program_about[] =
    "Muster serves language models on a fleet that grows and shrinks with its load. One binary "
    "holds four "
    "roles: a controller that buys and returns instances, agents that supervise them, an engine "
    "that computes "
    "tokens, and a router that sends each request where its completion is expected to cost the "
    "least time. "
    "`muster up` starts a fleet on this machine; each role is a command of its own.";

static int put_program(const struct pages *p)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    const char *group = "";
    begin(&out, "muster", 1,
          "serve language models on a fleet that grows and shrinks with its load");
    buf_text(&out, ".SH SYNOPSIS\n\\fBmuster\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
                   ".br\n\\fBmuster\\fR \\fB\\-\\-help\\fR | \\fB\\-\\-version\\fR\n"
                   ".SH DESCRIPTION\n");
    line(&out, program_about);
    buf_text(&out, ".SH COMMANDS\nEach command has a page of its own, as\n");
    put_reference(&out, "muster-up", 1, ".");
    for (size_t i = 0; p->commands[i]; i++) {
        const struct command *c = p->commands[i];
        if (strcmp(group, c->group) != 0) buf_printf(&out, ".SS \"%s\"\n", c->group);
        group = c->group;
        buf_text(&out, ".TP\n");
        bold(&out, c->name);
        buf_byte(&out, '\n');
        line(&out, c->about);
    }
    buf_text(&out,
             ".SH ENVIRONMENT\n.TP\n\\fBMUSTER_\\fISECTION\\fB_\\fIKEY\\fR\n"
             "Sets one value of the configuration, as \\fBMUSTER_ROUTER_LISTEN\\fR.\n"
             ".TP\n\\fBNOTIFY_SOCKET\\fR, \\fBWATCHDOG_USEC\\fR\n"
             "Set by a service manager, which then hears when a role is ready, stops and lives.\n"
             ".SH FILES\n.TP\n\\fImuster.yaml\\fR\nThe configuration; see\n");
    put_reference(&out, "muster.yaml", 5, ".");
    put_exit_status(&out);
    buf_text(&out, ".SH \"SEE ALSO\"\n");
    put_reference(&out, "muster.yaml", 5, ",");
    for (size_t i = 0; p->commands[i]; i++) {
        char name[PAGE_NAME_MAX];
        snprintf(name, sizeof name, "muster-%s", p->commands[i]->name);
        put_reference(&out, name, 1, p->commands[i + 1] ? "," : "");
    }
    return give(p, "muster", 1, &out);
}

/* ---- the configuration ---- */

static void put_lists(struct buf *out, const struct config_record *record, const char *title);

/* Prints the keys of a record and of the mappings in it. */
static void put_keys(struct buf *out, const struct config_record *record, const char *prefix)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        CLEANUP(buf_fini) struct buf text = { 0 };
        CLEANUP(buf_fini) struct buf path = { 0 };
        buf_printf(&path, "%s%s", prefix, f->name);
        if (f->type == CONFIG_RECORD) buf_byte(&path, '.');
        if (path.rc < 0) out->rc = path.rc;
        if (path.rc < 0) return;
        if (f->type == CONFIG_RECORD) {
            put_keys(out, f->record, path.data);
            continue;
        }
        buf_text(&text, f->about);
        config_field_facts(f, &text);
        if (f->reloadable) buf_text(&text, " Can be changed in a running process.");
        if (f->debug) buf_text(&text, " Diagnostics.");
        buf_text(out, ".TP\n");
        bold(out, path.data);
        buf_printf(out, " \\fI%s\\fR\n", config_type_name(f->type));
        man_text(out, buf_view(&text));
        buf_byte(out, '\n');
        if (text.rc < 0) out->rc = text.rc;
    }
}

static void put_record(struct buf *out, const struct config_record *record, const char *title,
                       const char *about, bool top)
{
    buf_printf(out, ".%s \"", top ? "SH" : "SS");
    man_text(out, str_from(title));
    buf_text(out, "\"\n");
    line(out, about);
    if (record->key) buf_printf(out, "Items differ in their \\fB%s\\fR.\n", record->key);
    put_keys(out, record, "");
    put_lists(out, record, title);
}

static void put_lists(struct buf *out, const struct config_record *record, const char *title)
{
    for (size_t i = 0; i < record->field_count; i++) {
        const struct config_field *f = &record->fields[i];
        CLEANUP(buf_fini) struct buf name = { 0 };
        bool list = f->type == CONFIG_RECORDS;
        if (!f->record) continue;
        if (buf_printf(&name, "%s.%s%s", title, f->name, list ? "[]" : "") < 0) out->rc = name.rc;
        if (name.rc < 0) return;
        if (list)
            put_record(out, f->record, name.data, f->about, false);
        else
            put_lists(out, f->record, name.data);
    }
}

static const char file_about[] =
    "`muster.yaml` is the configuration of all roles: a mapping with the sections below, in YAML "
    "without "
    "anchors, aliases and tags. A value comes from, strongest first: an option of the role's "
    "command, the "
    "environment (`MUSTER_ROUTER_LISTEN`), the file, the default. Lists of mappings are set in the "
    "file only. "
    "A key that is unknown, repeated or out of range refuses to start, with its line; `muster "
    "config check` "
    "lists all problems. Durations are written 250ms, 10s, 2m, 1h; sizes 512, 64MiB, 1GB.";

static int put_file(const struct pages *p, const struct config_schema *schema)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    begin(&out, "muster.yaml", 5, "configuration of muster");
    buf_text(&out, ".SH DESCRIPTION\n");
    line(&out, file_about);
    for (size_t i = 0; i < schema->count; i++) {
        const struct config_section *s = schema->sections[i];
        CLEANUP(buf_fini) struct buf title = { 0 };
        if (buf_printf(&title, "%s%s", s->name, s->list ? "[]" : "") < 0) return title.rc;
        put_record(&out, s->record, title.data, s->about, true);
    }
    buf_text(&out, ".SH \"SEE ALSO\"\n");
    put_reference(&out, "muster", 1, ",");
    put_reference(&out, "muster-config", 1, "");
    return give(p, "muster.yaml", 5, &out);
}

int man_pages(const struct command *const *commands, const struct config_schema *schema,
              man_page_fn fn, void *ctx)
{
    struct pages p = { .commands = commands, .fn = fn, .ctx = ctx };
    int rc = put_program(&p);
    if (rc >= 0) rc = command_usages(commands, put_command, &p);
    if (rc >= 0) rc = put_file(&p, schema);
    return rc < 0 ? rc : 0;
}
