"""t_lambda_client.py - tests our Lambda driver beside a Python library of the same API on one fake: the library lists and
ends what the driver made.

Skipped where lambda_cloud_client is not installed. MUSTER_LAMBDA_PYTHON names a Python that has it.
"""

import json
import unittest

from beside import TOKEN, Beside, import_or_skip, wait

client = import_or_skip("lambda_cloud_client", "MUSTER_LAMBDA_PYTHON")


class Lambda(Beside):
    plays = "lambda"

    def setUp(self):
        super().setUp()
        configuration = client.Configuration(host=f"{self.url}/api/v1", access_token=TOKEN)
        self.api = client.DefaultApi(client.ApiClient(configuration))

    def there(self):
        """Ids of instances that stay. Read as JSON: the library is older than the status `terminating`."""
        reply = self.api.list_instances_with_http_info(_preload_content=False)
        return {i["id"] for i in json.loads(reply.raw_data)["data"] if i["status"] != "terminating"}

    def test_each_sees_the_other(self):
        kind = self.api.instance_types().data["gpu_1x_a10"]
        self.assertEqual(kind.instance_type.price_cents_per_hour, 75)
        theirs = self.api.launch_instance(client.LaunchInstanceRequest(
            region_name="us-west-1", instance_type_name="gpu_1x_a10", ssh_key_names=["me"], name="not-of-the-fleet"))
        self.start_controller(2, f"""
    endpoint: {self.url}/api/v1
    ssh_keys: [me]
    offers: [ {{ name: small, type: gpu_1x_a10, zones: [us-east-1] }} ]
""", {"LAMBDA_API_KEY": TOKEN})
        wait(lambda: len(self.there()) == 3, "two instances of ours")
        first = next(i for i in self.api.list_instances().data if i.name != "not-of-the-fleet")
        self.assertEqual(first.region.name, "us-east-1")
        self.assertEqual(first.instance_type.name, "gpu_1x_a10")

        # What the library ends, the controller misses and buys anew.
        self.api.terminate_instance_with_http_info(
            client.TerminateInstanceRequest(instance_ids=[first.id]), _preload_content=False)
        wait(lambda: len(self.there()) == 3 and first.id not in self.there(), "the lost one is replaced")
        kept = self.api.get_instance(theirs.data.instance_ids[0]).data
        self.assertEqual(kept.name, "not-of-the-fleet")
        self.assert_understood()


if __name__ == "__main__":
    unittest.main()
