"""t_vast_client.py - tests our Vast.ai driver beside the provider's own Python library on one fake: the library lists and
destroys what the driver made.

Skipped where vastai is not installed. MUSTER_VAST_PYTHON names a Python that has it.
"""

import unittest

from beside import TOKEN, Beside, import_or_skip, wait

vastai = import_or_skip("vastai", "MUSTER_VAST_PYTHON")


class Vast(Beside):
    plays = "vast"

    def setUp(self):
        super().setUp()
        self.api = vastai.VastAI(api_key=TOKEN, server_url=self.url)

    def ours(self):
        return self.api.show_instances()

    def test_the_library_sees_and_destroys_what_the_driver_made(self):
        self.start_controller(2, f"""
    endpoint: {self.url}/api
    image: example.org/muster-cuda:0.1.0
    offers: [ {{ name: small, type: RTX_4090, spot: true, zones: [DE] }} ]
""", {"VAST_API_KEY": TOKEN})
        wait(lambda: len(self.ours()) == 2, "two instances of ours")
        first = self.ours()[0]
        self.assertEqual(first["gpu_name"], "RTX 4090")
        self.assertEqual(first["geolocation"], "DE")
        self.assertTrue(first["is_bid"])
        self.assertEqual(first["label"], first["extra_env"]["TAG_MUSTER_INTENT"])
        self.assertEqual(first["extra_env"]["TAG_MUSTER_SERVICE"], "org/chat")

        # What the library destroys, the controller misses and buys anew.
        self.api.destroy_instance(id=first["id"])
        wait(lambda: len(self.ours()) == 2 and all(i["id"] != first["id"] for i in self.ours()),
             "the lost one is replaced")
        self.assert_understood()


if __name__ == "__main__":
    unittest.main()
