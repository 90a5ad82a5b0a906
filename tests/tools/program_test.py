#!/usr/bin/env python3
"""Runs the anabranch program as a user does: commands, exit codes, messages, files.

usage: program_test.py PROGRAM SUPPORT_MD [unittest arguments]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SUPPORT_MD = ""
KEYS = {"op", "pass", "T", "D", "n", "L", "dtype", "threads", "target", "seconds_median",
        "seconds_min", "bytes", "flops", "roof", "roof_value", "fraction"}


def run(*arguments, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("ANABRANCH_")}
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300,
                          env={**clean, **environment}, check=False)


def info():
    return json.loads(run("info", "--json").stdout)


class ProgramTest(unittest.TestCase):
    def assert_fine(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_refused(self, result, *words):
        """Exit code 2, one line on stderr that says why, nothing else."""
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertRegex(result.stderr, r"\Aanabranch: error: [^\n]+\n\Z")
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, result.stderr)


class HelpTest(ProgramTest):
    def test_every_command_has_help_with_examples(self):
        top = run("--help")
        self.assert_fine(top)
        for command in ("info", "check", "bench"):
            self.assertIn(command, top.stdout)
            result = run(command, "--help")
            self.assert_fine(result)
            self.assertIn("Example", result.stdout)
            self.assertIn(f"anabranch {command}", result.stdout)

    def test_version(self):
        result = run("--version")
        self.assert_fine(result)
        self.assertEqual(result.stdout.strip(), info()["version"])


class InfoTest(ProgramTest):
    def test_text_and_json_agree(self):
        facts = info()
        text = run("info")
        self.assert_fine(text)
        self.assertIn(facts["target"], facts["targets"])
        self.assertGreaterEqual(facts["threads"], 1)
        self.assertGreater(facts["l1d_bytes"], 0)
        for word in [facts["version"], facts["target_why"], *facts["targets"], *facts["dtypes"]]:
            self.assertIn(word, text.stdout)
        for operator in facts["operators"]:
            self.assertIn(operator["name"], text.stdout)
            self.assertTrue(operator["variants"])

    def test_forced_target(self):
        for target in info()["targets"]:
            forced = json.loads(run("info", "--json", ANABRANCH_TARGET=target).stdout)
            self.assertEqual(forced["target"], target)

    def test_support_table_of_the_docs_is_current(self):
        result = run("support-table")
        self.assert_fine(result)
        with open(SUPPORT_MD, encoding="utf-8") as file:
            self.assertIn(result.stdout, file.read(),
                          "docs/support.md is out of date: anabranch support-table prints it")


class RefusalTest(ProgramTest):
    def test_commands_and_options(self):
        self.assert_refused(run())
        self.assert_refused(run("fly"))
        self.assert_refused(run("bench", "--no-such-option"), "no-such-option")
        self.assert_refused(run("check", "--cases", "many"), "many")
        self.assert_refused(run("check", "--cases", "0"), "--cases")
        self.assert_refused(run("check", "--case", "-3"), "--case")
        self.assert_refused(run("check", "--threads", "-1"), "--threads")
        self.assert_refused(run("bench", "--threads", "-1"), "--threads")
        self.assert_refused(run("bench", "--repeat", "0"), "--repeat")
        self.assert_refused(run("bench", "--pass", "sideways"), "sideways", "forward")

    def test_unknown_operator_lists_the_known_ones(self):
        names = [operator["name"] for operator in info()["operators"]]
        for command in ("check", "bench"):
            self.assert_refused(run(command, "mhc_toast"), "mhc_toast", *names)

    def test_shapes_and_types(self):
        for shape in ("T=4096,Q=3", "T=", "T=x", "T=-1", "4096", "T=4,,D=8", "T=99999999999999999999"):
            self.assert_refused(run("bench", "mhc_post", "--shape", shape), "--shape", "T")
        self.assert_refused(run("bench", "mhc_post", "--shape", "T=0,D=8,n=4"), "T is 0")
        self.assert_refused(run("bench", "mhc_post", "--shape", "T=8,D=8,n=99"), "n=99")
        self.assert_refused(run("bench", "mhc_post", "--shape", "T=8,D=0,n=4"), "D=0")
        variant = ("--shape", "T=8,D=8,n=4,variant=99")
        self.assert_refused(run("bench", "mhc_pre", *variant), "variant=99")
        self.assert_refused(run("bench", "mhc_post", "--shape", f"T={1 << 40},D={1 << 40},n=4"))
        for key in ("T", "D", "n", "L", "iters"):  # products of sizes overflow before any check
            for command in (("mhc_pre",), ("mhc_pre", "--plan"), ("attn_res_prepare", "--plan")):
                shape = f"T=4,{key}={1 << 62}"
                self.assert_refused(run("bench", *command, "--shape", shape), str(1 << 62), "at most")
        self.assert_refused(run("bench", "mhc_post", "--dtype", "fp8"), "fp8", "bf16")

    def test_targets(self):
        best = info()["targets"][0]
        for command in ("check", "bench"):
            self.assert_refused(run(command, "--target", "mmx"), "mmx", best)
        for arguments in (["info"], ["check", "--cases", "1"], ["bench", "--quick"]):
            self.assert_refused(run(*arguments, ANABRANCH_TARGET="mmx"), "mmx", best)

    def test_files(self):
        shape = ("--shape", "T=1048576,D=4096,n=4")  # would take minutes: refused before the work
        with tempfile.TemporaryDirectory() as folder:
            self.assert_refused(run("bench", *shape, "--json", folder), folder, "directory")
            missing = os.path.join(folder, "missing", "out.json")
            self.assert_refused(run("bench", *shape, "--json", missing), missing)
            self.assertEqual(os.listdir(folder), [])


class CheckTest(ProgramTest):
    def test_runs_all_targets_with_or_without_progress(self):
        result = run("check", "mhc_post", "--cases", "5", "--seed", "11")
        self.assert_fine(result)
        self.assertIn("all ok", result.stdout)
        self.assertIn("seed 11", result.stdout)
        for target in info()["targets"]:
            self.assertIn(target, result.stdout)
        calls = re.search(r"^mhc_post +(\d+)", result.stdout, re.MULTILINE)
        self.assertEqual(int(calls.group(1)), 5 * len(info()["targets"]))
        self.assertRegex(result.stdout, r"(?m)^mhc_post_backward ")

    def test_one_case_again(self):
        target = info()["targets"][-1]
        result = run("check", "mhc_post_backward", "--seed", "3", "--case", "4", "--target", target,
                     "--threads", "2")
        self.assert_fine(result)
        self.assertRegex(result.stdout, r"(?m)^mhc_post_backward +1 ")

    def test_seconds_that_never_pass_are_refused(self):
        # Found by fuzzing: "nan" measured for ever.
        for command, option in (("bench", "--min-time"), ("check", "--seconds")):
            for value in ("nan", "-nan", "inf", "-1", "1e99", "x"):
                result = run(command, "mhc_permutation", f"{option}={value}")
                self.assertEqual(result.returncode, 2, value)
                self.assertIn(f"{option}: {value} is not a number of seconds, expected 0 ..",
                              result.stderr)

    def test_seconds(self):
        result = run("check", "mhc_post", "--seconds", "0.2")
        self.assert_fine(result)

    def test_what_ran_is_what_was_asked(self):
        for target in info()["targets"]:
            result = run("check", "mhc_post", "--case", "1", ANABRANCH_TARGET=target,
                         ANABRANCH_VERBOSE="1")
            self.assert_fine(result)
            self.assertIn(f"targets: {target};", result.stdout)
            # The reference in double precision has no target.
            lines = [line for line in result.stderr.splitlines() if "bfloat16" in line
                     or "float16" in line or "float32" in line]
            self.assertTrue(lines, result.stderr)
            for line in lines:
                self.assertIn(target, line)


class BenchTest(ProgramTest):
    def test_json(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            result = run("bench", "mhc_post", "--shape", "T=16,D=128,n=4", "--dtype", "bf16",
                         "--threads", "2", "--repeat", "3", "--json", path)
            self.assert_fine(result)
            self.assertEqual(os.listdir(folder), ["out.json"])
            with open(path, encoding="utf-8") as file:
                rows = json.load(file)
        self.assertEqual([row["pass"] for row in rows], ["forward", "backward"])
        for row in rows:
            self.assertEqual(set(row), KEYS)
            self.assertEqual((row["op"], row["T"], row["D"], row["n"], row["threads"]),
                             ("mhc_post", 16, 128, 4, 2))
            self.assertIn(row["dtype"], ("bf16", "bfloat16"))
            self.assertEqual(row["target"], info()["target"])
            self.assertLessEqual(0, row["seconds_min"])
            self.assertLessEqual(row["seconds_min"], row["seconds_median"])
            rate = row["bytes"] / row["seconds_median"]
            self.assertAlmostEqual(row["fraction"] / (rate / row["roof_value"]), 1, places=6)
        self.assertEqual([row["roof"] for row in rows], ["stream(5,4)", "stream(9,5)"])
        self.assertEqual(rows[0]["bytes"], 16 * 128 * 2 * 9)
        self.assertEqual(rows[1]["bytes"], 16 * 128 * 2 * 14)

    def test_an_old_file_survives_a_refusal(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write("old")
            self.assert_refused(run("bench", "mhc_toast", "--json", path))
            with open(path, encoding="utf-8") as file:
                self.assertEqual(file.read(), "old")

    def test_device_files_are_written_in_place(self):
        result = run("bench", "mhc_post", "--shape", "T=2,D=32,n=2", "--pass", "forward",
                     "--repeat", "1", "--json", "/dev/null")
        self.assert_fine(result)
        self.assertFalse(os.path.isfile("/dev/null"))
        if os.path.exists("/dev/full"):
            full = run("bench", "mhc_post", "--shape", "T=2,D=32,n=2", "--pass", "forward",
                       "--repeat", "1", "--json", "/dev/full")
            self.assertEqual(full.returncode, 2)
            self.assertIn("cannot write /dev/full", full.stderr)

    def test_passes_and_targets(self):
        for target in info()["targets"]:
            for which, name in (("forward", "mhc_post"), ("backward", "mhc_post_backward")):
                result = run("bench", "mhc_post", "--shape", "T=4,D=64,n=4", "--pass", which,
                             "--target", target, "--repeat", "1", "--min-time", "0.01")
                self.assert_fine(result)
                lines = result.stdout.strip().splitlines()
                self.assertEqual(len(lines), 2)
                self.assertTrue(lines[1].startswith(name + " "))
                self.assertIn(f" {target} ", lines[1])

    def test_plan_for_threads_that_are_not_here(self):
        for tokens in (512, 1024, 4096, 8192):
            result = run("bench", "mhc_post", "--plan", "--threads", "64", "--shape",
                         f"T={tokens},D=4096,n=4")
            self.assert_fine(result)
            imbalances = re.findall(r"imbalance[^\n]*: ([0-9.]+) %", result.stdout)
            self.assertEqual(len(imbalances), 2, result.stdout)
            for imbalance in imbalances:
                self.assertLessEqual(float(imbalance), 5)
            result = run("bench", "block_attn_res", "attn_res_prepare", "attn_res_merge", "--plan",
                         "--threads", "64", "--shape", f"T={tokens},D=7168,n=4,L=9")
            self.assert_fine(result)
            self.assertEqual(len(re.findall(r"threads +64\n", result.stdout)), 6, result.stdout)
            imbalances = re.findall(r"imbalance[^\n]*: ([0-9.]+) %", result.stdout)
            self.assertEqual(len(imbalances), 6, result.stdout)
            for imbalance in imbalances:
                self.assertLessEqual(float(imbalance), 5)

    def test_ranges_of_shapes(self):
        result = run("bench", "mhc_post", "--plan", "--pass", "forward", "--shape",
                     "T=512..2048,D=64,n=4")
        self.assert_fine(result)
        self.assertEqual(re.findall(r"x=\(1, (\d+),", result.stdout), ["512", "1024", "2048"])
        for shape in ("T=8..4", "T=0..4", "T=1..", "T=1..x", "..4", "T=1..99999999999999"):
            result = run("bench", "mhc_post", "--plan", "--shape", shape)
            self.assertEqual(result.returncode, 2, result.stdout)
            self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)


if __name__ == "__main__":
    PROGRAM, SUPPORT_MD = sys.argv[1:3]
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
