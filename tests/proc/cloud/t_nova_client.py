"""t_nova_client.py - tests our Nova driver beside python-novaclient and keystoneauth1 on one fake: each sees what the other
made, and the library deletes what the driver made.

Skipped where the libraries are not installed. MUSTER_NOVA_PYTHON names a Python that has them.
"""

import unittest

from beside import TOKEN, Beside, import_or_skip, wait

novaclient = import_or_skip("novaclient", "MUSTER_NOVA_PYTHON")
import novaclient.client  # noqa: E402
import novaclient.exceptions  # noqa: E402
from keystoneauth1 import exceptions, session  # noqa: E402
from keystoneauth1.identity import v3  # noqa: E402

IMAGE = "70a599e0-31e7-49b7-b260-868f441e862b"


class Nova(Beside):
    plays = "nova"

    def client(self, auth):
        return novaclient.client.Client("2.1", session=session.Session(auth=auth), region_name="RegionOne")

    def by_password(self, password=TOKEN):
        return self.client(v3.Password(
            auth_url=f"{self.url}/identity/v3", username="fleet", password=password, user_domain_name="Default",
            project_name="fleet", project_domain_name="Default"))

    def test_each_sees_the_other(self):
        nova = self.by_password()
        flavor = next(f for f in nova.flavors.list(detailed=False) if f.name == "g1.small")
        theirs = nova.servers.create("not-of-the-fleet", IMAGE, flavor, meta={"muster-fleet": "another"},
                                     userdata="#!/bin/sh\ntrue\n", availability_zone="az1")
        self.start_controller(2, f"""
    image: {IMAGE}
    offers: [ {{ name: small, type: g1.small, zones: [az2], price_per_hour: 0.1 }} ]
""", {"OS_AUTH_URL": f"{self.url}/identity/v3", "OS_USERNAME": "fleet", "OS_PASSWORD": TOKEN,
      "OS_PROJECT_NAME": "fleet"})
        ours = lambda: [s for s in nova.servers.list() if s.metadata.get("muster-fleet") == "muster"]
        wait(lambda: len(ours()) == 2, "two servers of ours")
        first = ours()[0]
        self.assertEqual(first.name, first.metadata["muster-intent"])
        self.assertEqual(first.metadata["muster-service"], "org/chat")
        self.assertEqual(first.metadata["muster-offer"], "small")
        self.assertEqual(getattr(first, "OS-EXT-AZ:availability_zone"), "az2")

        # What the library deletes, the controller misses and buys anew.
        first.delete()
        wait(lambda: len(ours()) == 2 and all(s.id != first.id for s in ours()), "the lost one is replaced")
        self.assertEqual(nova.servers.get(theirs.id).name, "not-of-the-fleet")
        machines = {m["name"]: m for m in self.get("/fake/machines")["machines"]}
        self.assertEqual(machines["not-of-the-fleet"]["user_data"], "#!/bin/sh\ntrue\n")
        self.assertIn("umask 077", machines[ours()[0].name]["user_data"])
        self.assert_understood()

    def test_a_wrong_password_and_an_application_credential(self):
        with self.assertRaises(exceptions.http.Unauthorized):
            self.by_password("wrong").servers.list()
        nova = self.client(v3.ApplicationCredential(
            auth_url=f"{self.url}/identity/v3", application_credential_id="a1",
            application_credential_secret=TOKEN))
        self.assertEqual(nova.servers.list(), [])
        with self.assertRaises(novaclient.exceptions.NotFound):
            nova.servers.get("00000000-0000-4000-8000-00000098ffff")

    def test_shelved_servers(self):
        """The library shelves and unshelves what the fake has, and is refused where Nova refuses."""
        nova = self.by_password()
        flavor = next(f for f in nova.flavors.list(detailed=False) if f.name == "g1.small")
        one = nova.servers.create("one", IMAGE, flavor, availability_zone="az1")
        task = lambda: getattr(nova.servers.get(one.id), "OS-EXT-STS:task_state")
        status = lambda: nova.servers.get(one.id).status
        with self.assertRaises(novaclient.exceptions.Conflict):
            nova.servers.unshelve(one.id)
        nova.servers.shelve(one.id)
        self.assertTrue(task().startswith("shelving"))
        with self.assertRaises(novaclient.exceptions.Conflict):
            nova.servers.unshelve(one.id)
        wait(lambda: status() == "SHELVED_OFFLOADED", "it is shelved")
        with self.assertRaises(novaclient.exceptions.Conflict):
            nova.servers.shelve(one.id)
        nova.servers.unshelve(one.id)
        self.assertEqual(task(), "unshelving")
        wait(lambda: status() == "ACTIVE" and task() is None, "it runs again")
        self.assert_understood()


if __name__ == "__main__":
    unittest.main()
