"""Writes FOLDER/random.gguf, one tensor of random bits a type, and TYPE.f32, what gguf says they are."""
import sys

import gguf
import numpy as np

folder = sys.argv[1]
rows, columns = 7, 512
rng = np.random.default_rng(20240601)
writer = gguf.GGUFWriter(f"{folder}/random.gguf", "llama")
writer.add_uint32("test.u32", 7)
writer.add_float32("test.f32", 0.5)
writer.add_bool("test.bool", True)
writer.add_array("test.strings", ["a", "é", ""])
writer.add_array("test.ints", [1, -2, 3])
for name in ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]:
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    packed = rng.integers(0, 256, (rows, columns // elements * size), dtype=np.uint8)
    with np.errstate(all="ignore"):
        if name == "F32":
            values = packed.view(np.float32)
        elif name == "F16":
            values = packed.view(np.float16).astype(np.float32)
        else:
            values = gguf.quants.dequantize(packed, kind)
    assert values.shape == (rows, columns), (name, values.shape)
    values.astype(np.float32).tofile(f"{folder}/{name.lower()}.f32")
    writer.add_tensor(name.lower(), packed, raw_dtype=kind)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
