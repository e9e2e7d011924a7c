"""Compares the logits of models.json with those that llama.cpp computes from the same files.

    cargo test --test it -- --ignored files_are_written      # with WARPLOOM_WRITE_MODELS=FOLDER
    npm install @node-llama-cpp/linux-x64
    python llama_cpp.py FOLDER node_modules/@node-llama-cpp/linux-x64/bins/linux-x64
"""

import ctypes
import json
import pathlib
import sys

files, libraries = map(pathlib.Path, sys.argv[1:3])


def library(name):
    # Some builds have their version in the names of their files.
    [path] = [path for pattern in (".so", ".v*.so") for path in libraries.glob(f"lib{name}{pattern}")]
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


_, ggml, llama = library("ggml-base"), library("ggml"), library("llama")


class Parameters(ctypes.Structure):
    """Structures that pass by value in memory; the callee reads as much as it knows of."""

    _fields_ = [("words", ctypes.c_uint32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), ("pointers", ctypes.c_void_p * 6)]


pointer = ctypes.c_void_p
for name, result, arguments in [
    ("llama_model_default_params", Parameters, []),
    ("llama_context_default_params", Parameters, []),
    ("llama_model_load_from_file", pointer, [ctypes.c_char_p, Parameters]),
    ("llama_init_from_model", pointer, [pointer, Parameters]),
    ("llama_batch_get_one", Batch, [pointer, ctypes.c_int32]),
    ("llama_decode", ctypes.c_int32, [pointer, Batch]),
    ("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), [pointer, ctypes.c_int32]),
    ("llama_free", None, [pointer]),
    ("llama_model_free", None, [pointer]),
]:
    function = getattr(llama, name)
    function.restype, function.argtypes = result, arguments
quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(
    lambda level, text, _: level >= 4 and sys.stderr.write(text.decode()))
llama.llama_log_set(quiet, None)
ggml.ggml_backend_load_all_from_path(str(libraries).encode())
llama.llama_backend_init()

golden = json.loads(pathlib.Path(__file__).with_name("models.json").read_text())
worst = 0.0
for i, row in enumerate(golden["models"]):
    label = row["name"] + (f" ({row['variant']})" if row.get("variant") else "")
    model = llama.llama_model_load_from_file(str(files / f"{i}.gguf").encode(), llama.llama_model_default_params())
    if not model:
        print(f"{label}: llama.cpp does not load it")
        continue
    most = 0.0
    for prompt, logits in zip(row.get("prompts", golden["prompts"]), row["logits"]):
        parameters = llama.llama_context_default_params()
        parameters.words[0] = 64  # n_ctx
        context = llama.llama_init_from_model(model, parameters)
        tokens = (ctypes.c_int32 * len(prompt))(*prompt)
        if llama.llama_decode(context, llama.llama_batch_get_one(ctypes.cast(tokens, pointer), len(prompt))) != 0:
            sys.exit(f"{label}: llama_decode failed")
        found = llama.llama_get_logits_ith(context, -1)
        most = max(most, *(abs(found[j] - logit) for j, logit in enumerate(logits)))
        llama.llama_free(context)
    llama.llama_model_free(model)
    worst = max(worst, most)
    print(f"{label}: {most:.1e}")
print(f"largest difference of a logit: {worst:.1e}")
