"""Wrong schedulers: the oracle with one rule changed each, to measure what a set of workloads can tell apart."""

import types
from pathlib import Path

ORACLE = Path(__file__).with_name("oracle.py")

# name: (text in oracle.py, its replacement)
MUTATIONS = {
    "null block usable": ("range(num_blocks - 1)", "range(num_blocks)"),
    "watermark rounded up": ('int(config["watermark"] * num_blocks)', '-int(-config["watermark"] * num_blocks // 1)'),
    "watermark on an empty batch": ("self.watermark_blocks if self.running else 0", "self.watermark_blocks"),
    "no watermark": ("self.watermark_blocks if self.running else 0", "0"),
    "reservation ignores free hits": ("+ sum(block.ref_count == 0 for block in hits)", ""),
    "whole prompt may hit": (
        "(len(request.tokens) - 1) // self.block_size]",
        "len(request.tokens) // self.block_size]",
    ),
    "lookup covers the prompt only": (
        "(len(request.tokens) - 1) //",
        "min(len(request.tokens) - 1, request.prompt_len) //",
    ),
    "newest copy is hit": ("hits.append(self.cached[h][0])", "hits.append(self.cached[h][-1])"),
    "copies are de-duplicated": (
        "self.cached.setdefault(request.block_hashes[i], []).append(request.blocks[i])",
        "self.cached.setdefault(request.block_hashes[i], [request.blocks[i]])",
    ),
    "head freed first": ("for block in reversed(request.blocks)", "for block in request.blocks"),
    "hashed blocks to the front": (
        "            elif block.ref_count == 0:\n                self.free_queue.append(block)",
        "            elif block.ref_count == 0:\n                self.free_queue.appendleft(block)",
    ),
    "unhashed blocks to the back": ("self.free_queue.appendleft(block)", "self.free_queue.append(block)"),
    "hashed up to computed tokens before the step": (
        "self.pool.cache(request, min(total, len(request.tokens)))",
        "self.pool.cache(request, min(request.num_computed, len(request.tokens)))",
    ),
    "decoded blocks are not hashed": (
        "self.pool.cache(request, min(total, len(request.tokens)))",
        "self.pool.cache(request, min(total, request.prompt_len))",
    ),
    "last async token hashes nothing": (
        "self.pool.cache(request, request.num_computed - request.num_placeholders)",
        "pass",
    ),
    "threshold holds for a lone request": (
        "alone = len(self.running) + len(self.waiting) == 1",
        "alone = False",
    ),
    "lone means running alone": (
        "alone = len(self.running) + len(self.waiting) == 1",
        "alone = len(self.running) == 1",
    ),
    "threshold on prefills only when waiting": (
        "wanted = min(wanted, self.threshold or wanted, self.budget)",
        "wanted = min(wanted, self.budget)",
    ),
    "admission in a step that preempted": ("if not plan.preempted:", "if True:"),
    "budget of a victim is lost": ("self.budget += plan.scheduled.pop(victim, 0)", "plan.scheduled.pop(victim, 0)"),
    "index not moved for an earlier victim": (
        "                if self.running.index(victim) < index:\n                    index -= 1\n",
        "",
    ),
    "victim: first of equals": (
        "max(self.running, key=lambda r: r.rank)",
        "max(self.running, key=lambda r: r.priority)",
    ),
    "victim: least important by number": (
        "max(self.running, key=lambda r: r.rank)",
        "max(self.running, key=lambda r: (-r.priority, r.arrival))",
    ),
    "victim: always the last": (
        "max(self.running, key=lambda r: r.rank) if self.is_priority else self.running[-1]",
        "self.running[-1]",
    ),
    "victim: never itself, fcfs": (
        "if self.is_priority else self.running[-1]",
        "if self.is_priority else ([r for r in self.running if r is not request] or [request])[-1]",
    ),
    "walk goes on after a self-preemption": (
        '            if request.status != "running":  # its own victim: the walk stops\n                break',
        '            if request.status != "running":\n                continue',
    ),
    "a skipped request stops the walk": (
        "# skipped, the walk goes on\n                index += 1\n                continue",
        "\n                break",
    ),
    "preempted to the back": ("self.waiting.insert(0, request)", "self.waiting.append(request)"),
    "preempted to the front under priority too": (
        "self.waiting.insert(0, request)\n        self.order_waiting()",
        "self.waiting.insert(0, request)",
    ),
    "running sorted by priority": (
        "        index = 0\n",
        "        index = 0\n        self.running.sort(key=lambda r: r.rank * self.is_priority)\n",
    ),
    "blocked head is skipped": (
        "            if not self.admissible(request, hits, hit_tokens + num_tokens):\n                break",
        "            if not self.admissible(request, hits, hit_tokens + num_tokens):\n"
        "                if len(self.waiting) < 2 or getattr(self, 'skipping', False):\n                    break\n"
        "                self.waiting[0], self.waiting[1] = self.waiting[1], self.waiting[0]\n"
        "                self.skipping = True\n                continue\n            self.skipping = False",
    ),
    "unchunked prompts are cut": ('num_tokens > self.budget and not self.config["enable_chunked_prefill"]', "False"),
    "chunk test before the threshold": (
        'if num_tokens > self.budget and not self.config["enable_chunked_prefill"]',
        'if len(request.tokens) - hit_tokens > self.budget and not self.config["enable_chunked_prefill"]',
    ),
    "no reservation": ('if self.config["scheduler_reserve_full_isl"]:', "if False:"),
    "always reserve": ('if self.config["scheduler_reserve_full_isl"]:', "if True:"),
    "seats by max_num_seqs": ('config["max_num_active_seqs"] or config["max_num_seqs"]', 'config["max_num_seqs"]'),
    "model length one longer": (
        "self.max_model_len - 1 - request.num_computed",
        "self.max_model_len - request.num_computed",
    ),
    "async: runs past max_tokens": ("request.num_placeholders > 0  # async", "False  # async"),
    "async: guard without placeholders": ("request.num_placeholders > 0  # async", "True  # async"),
    "async: token in flight lost at preemption": (
        'if r in plan.sampling and r.status != "finished"',
        'if r in plan.sampling and r.status == "running"',
    ),
    "async: wasted step unseen": ('if r in plan.sampling and r.status != "finished"', "if r in plan.sampling"),
    "an aborted request keeps its blocks": (
        'request.status = "finished"\n        self.pool.free(request)\n        self.unannounced = True\n        return',
        'request.status = "finished"\n        self.unannounced = True\n        return',
    ),
    "an abort forgets what was cached": (
        '        (self.running if request.status == "running" else self.waiting).remove(request)\n',
        '        (self.running if request.status == "running" else self.waiting).remove(request)\n'
        "        for block in request.blocks:\n"
        "            if block.ref_count == 1 and block.hash is not None:\n"
        "                self.pool.cached.pop(block.hash)\n                block.hash = None\n",
    ),
    "eos ignored": ("if num_outputs == request.output_len < request.max_tokens:", "if False:"),
}


def mutant(name: str) -> types.ModuleType:
    old, new = MUTATIONS[name]
    source = ORACLE.read_text()
    assert source.count(old) >= 1, name
    module = types.ModuleType("mutant")
    exec(compile(source.replace(old, new), f"<{name}>", "exec"), module.__dict__)
    return module
