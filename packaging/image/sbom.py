"""sbom.py - describes the image in SPDX 2.3 JSON: packages, versions, licences, files with hashes, who holds whom.

    document DESCRIBES image;  image CONTAINS muster, debian packages;  muster DYNAMIC_LINK library's package
    each package lists its files

Licences are taken from the packages' copyright files. Where such a file has the machine-readable form, each name in
it that SPDX knows is written so; the others, and files without the form, are LicenseRefs with the text beside them.
"""
import hashlib
import re

from rootfs import CERTIFICATES, run

# Names of Debian's copyright format -> identifiers of SPDX, lower case on the left.
KNOWN = {
    "apache-2.0": "Apache-2.0", "apache-2": "Apache-2.0", "artistic": "Artistic-1.0-Perl",
    "bsd-2-clause": "BSD-2-Clause", "bsd-3-clause": "BSD-3-Clause", "bsd-4-clause": "BSD-4-Clause",
    "cc0-1.0": "CC0-1.0", "cc0": "CC0-1.0", "curl": "curl", "expat": "MIT", "mit": "MIT", "isc": "ISC", "zlib": "Zlib",
    "gpl-1+": "GPL-1.0-or-later", "gpl-2": "GPL-2.0-only", "gpl-2+": "GPL-2.0-or-later", "gpl-3": "GPL-3.0-only",
    "gpl-2.0": "GPL-2.0-only", "gpl-2.0+": "GPL-2.0-or-later", "gpl-3.0+": "GPL-3.0-or-later",
    "gpl-3+": "GPL-3.0-or-later", "lgpl-2": "LGPL-2.0-only", "lgpl-2+": "LGPL-2.0-or-later",
    "lgpl-2.1": "LGPL-2.1-only", "lgpl-2.1+": "LGPL-2.1-or-later", "lgpl-3": "LGPL-3.0-only",
    "lgpl-3+": "LGPL-3.0-or-later", "mpl-1.1": "MPL-1.1", "mpl-2.0": "MPL-2.0", "unicode": "Unicode-DFS-2016",
}
NAME = "LicenseRef-"


def identifier(text):
    """Makes the part of an SPDX id that may hold letters, digits, dots and hyphens only."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-")


def fields_of(path):
    """Returns {name: value} of `License:` paragraphs of a machine-readable copyright file, or None for another."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if not re.match(r"\s*Format(-Specification)?:", text):
        return None, text
    names = {}
    for match in re.finditer(r"^License:[ \t]*(.*)\n((?:[ \t].*\n?)*)", text, re.M):
        short = match.group(1).strip()
        if short and (short not in names or match.group(2)):
            names[short] = match.group(2)
    return names, text


class Licences:
    """Turns copyright files into SPDX expressions and collects the texts of LicenseRefs."""

    def __init__(self):
        self.texts = {}

    def ref(self, name, text):
        name = NAME + identifier(name)
        self.texts.setdefault(name, text.strip() or name)
        return name

    def one(self, word, package, text):
        exception = re.match(r"(.+?)\s+with\s+.*exception", word, re.I)
        spdx = KNOWN.get((exception.group(1) if exception else word).strip().lower())
        if spdx and not exception:
            return spdx
        return self.ref(f"{package}-{word}", text)

    def expression(self, package):
        """`A or B and C` in a copyright file has words of its own between names, so each name is looked up."""
        name = package.split(":")[0]
        names, text = fields_of(f"/usr/share/doc/{name}/copyright")
        if names is None:
            return self.ref(f"{name}-copyright", text)
        parts = set()
        for field, body in names.items():
            words = [word for word in re.split(r"\s*,\s*|\s+(?:and/or|and|or)\s+", field) if word]
            terms = sorted({self.one(word, name, body) for word in words})
            choice = re.search(r"\s(or|and/or)\s", field) and len(terms) > 1
            parts.update(["(" + " OR ".join(terms) + ")"] if choice else terms)
        return " AND ".join(sorted(parts)) if parts else self.ref(f"{name}-copyright", text)


def file_entry(path, data):
    sha1, sha256 = hashlib.sha1(data).hexdigest(), hashlib.sha256(data).hexdigest()
    return {
        "SPDXID": "SPDXRef-File-" + sha256[:16] + "-" + identifier(path)[-80:],
        "fileName": "./" + path,
        "checksums": [{"algorithm": "SHA1", "checksumValue": sha1},
                      {"algorithm": "SHA256", "checksumValue": sha256}],
        "licenseConcluded": "NOASSERTION",
        "licenseInfoInFiles": ["NOASSERTION"],
        "copyrightText": "NOASSERTION",
    }


def verification(files):
    """SPDX's code over the files of a package: the hash of their sorted SHA-1s."""
    codes = sorted(entry["checksums"][0]["checksumValue"] for entry in files)
    return {"packageVerificationCodeValue": hashlib.sha1("".join(codes).encode()).hexdigest()}


def package_entry(spdx_id, name, version, licence, files, **more):
    entry = {
        "SPDXID": spdx_id, "name": name, "versionInfo": version, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": bool(files), "licenseConcluded": licence, "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }
    if files:
        entry["packageVerificationCode"] = verification(files)
        entry["licenseInfoFromFiles"] = ["NOASSERTION"]
        entry["hasFiles"] = [file["SPDXID"] for file in files]
    entry.update(more)
    return entry


FIELDS = ("Version", "Architecture", "source:Package", "source:Version")


def query(packages):
    """Returns {package: {field: value}} of dpkg's database, in order of names."""
    form = "\\t".join(f"${{{field}}}" for field in ("binary:Package",) + FIELDS) + "\\n"
    rows = [line.split("\t") for line in run("dpkg-query", "-W", "-f=" + form, *sorted(packages)).splitlines()]
    found = {row[0]: dict(zip(FIELDS, row[1:])) for row in rows}
    return {package: found[package] for package in sorted(packages)}


def distribution():
    fields = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)', open("/etc/os-release", encoding="utf-8").read(), re.M))
    return fields.get("ID", "debian"), fields.get("VERSION_CODENAME", "")


def relation(subject, kind, target):
    return {"spdxElementId": subject, "relationshipType": kind, "relatedSpdxElement": target}


def debian_packages(tree, packages, licences):
    """Returns the entries of packages, and their files, in order of names."""
    entries, files = [], []
    vendor, codename = distribution()
    for package, about in query(packages).items():
        name, version, architecture = package.split(":")[0], about["Version"], about["Architecture"]
        own = [file_entry(path, entry.data) for path, entry in tree.files() if entry.package == package]
        purl = f"pkg:deb/{vendor}/{name}@{version.replace('+', '%2B').replace(':', '%3A')}?arch={architecture}"
        entries.append(package_entry(
            "SPDXRef-Package-" + identifier(name), name, version, licences.expression(package), own,
            supplier="Organization: " + vendor.capitalize(),
            sourceInfo=f"built from the source package {about['source:Package']} {about['source:Version']}",
            externalRefs=[{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                           "referenceLocator": purl + (f"&distro={codename}" if codename else "")}]))
        files += own
    return entries, files


def document(tree, packages, version, created):
    """Returns the document. It does not hold the image's name in a registry: the same image may have several."""
    name = "muster-" + version
    licences = Licences()
    debian, files = debian_packages(tree, packages, licences)
    own = [file_entry(path, entry.data) for path, entry in tree.files() if entry.package is None]
    image = package_entry("SPDXRef-Image", "muster-image", version, "NOASSERTION", [], primaryPackagePurpose="CONTAINER")
    muster = package_entry("SPDXRef-Package-muster", "muster", version, "Apache-2.0", own,
                           supplier="Organization: Muster", primaryPackagePurpose="APPLICATION")
    relations = [relation("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-Image"),
                 relation("SPDXRef-Image", "CONTAINS", "SPDXRef-Package-muster")]
    for entry in debian:
        relations.append(relation("SPDXRef-Image", "CONTAINS", entry["SPDXID"]))
        if any(re.search(r"\.so(\.|$)", file["fileName"]) for file in files
               if file["SPDXID"] in entry.get("hasFiles", [])):
            relations.append(relation("SPDXRef-Package-muster", "DYNAMIC_LINK", entry["SPDXID"]))
    for entry in [muster] + debian:
        for file in entry.get("hasFiles", []):
            relations.append(relation(entry["SPDXID"], "CONTAINS", file))
    everything = hashlib.sha256("".join(sorted(
        file["fileName"] + file["checksums"][1]["checksumValue"] for file in files + own)).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": name, "documentNamespace": f"https://muster.invalid/spdx/{identifier(name)}-{everything}",
        "comment": f"The file /{CERTIFICATES} joins the certificates of the package ca-certificates; this document "
                   "is the only file of the image that is not in it.",
        "creationInfo": {"created": created, "creators": ["Tool: muster-image"]},
        "documentDescribes": ["SPDXRef-Image"],
        "packages": [image, muster] + debian,
        "files": own + files,
        "relationships": relations,
        "hasExtractedLicensingInfos": [
            {"licenseId": name, "extractedText": text, "name": name[len(NAME):]}
            for name, text in sorted(licences.texts.items())],
    }
