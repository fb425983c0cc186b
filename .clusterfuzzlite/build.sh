#!/bin/bash -eu
# Builds the fuzz targets for ClusterFuzzLite, with their seeds and dictionaries.

# Sanitizers need the nightly compiler of the image.
rm -f rust-toolchain.toml
cargo fuzz build -O
for path in fuzz/fuzz_targets/*.rs; do
    name=$(basename "$path" .rs)
    cp "fuzz/target/x86_64-unknown-linux-gnu/release/$name" "$OUT/"
    seeds=("fuzz/corpus/$name")
    [[ ! -e fuzz/regressions/$name ]] || seeds+=("fuzz/regressions/$name")
    zip -jrq "$OUT/${name}_seed_corpus.zip" "${seeds[@]}"
    [[ ! -e fuzz/dictionaries/$name.dict ]] || cp "fuzz/dictionaries/$name.dict" "$OUT/"
done
