//! `fuseline verify` as users see it.

use fuseline::tensor::{DType, Literal};
use fuseline_frontend::npz::{Compression, write_npz};
use serde_json::Value;

use super::{fuseline, stdout};

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(&[&["verify"], arguments, &["--device", "cpu", "--json"]].concat())).unwrap()
}

fn structure(name: &str) -> String {
    format!("{}/../../tests/models/structure/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn inputs_may_be_called_as_those_of_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("names.ir");
    // The kernel takes x0 and does not need it: before the first of one there is nothing.
    let text = "graph g(x0: f32[1, 8, 8], w: f32[8]) {\n  %2 = prefix.sum x0 axis=0 exclusive : f32[1, 8, 8]\n  \
                %3 = view w[i2] : f32[1, 8, 8]\n  %4 = map(%2, %3) a * b + b : f32[1, 8, 8]\n  return y = %4\n}\n";
    std::fs::write(&path, text).unwrap();
    assert_eq!(json(&[path.to_str().unwrap()])["agrees"], true);
}

#[test]
fn long_sums_of_equal_numbers_agree() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sums.ir");
    for (shape, axis, result) in [("65536, 64", 0, "64"), ("64, 65536", 1, "64"), ("40, 3000, 20", 1, "40, 20")] {
        let text = format!(
            "graph g(x: f32[{shape}]) {{\n  %1 = reduce.sum x axes=[{axis}] : f32[{result}]\n  return y = %1\n}}\n"
        );
        std::fs::write(&path, text).unwrap();
        for x in ["x=3.3", "x=0.1"] {
            let verdict = json(&[path.to_str().unwrap(), "--input", x]);
            let ulp = verdict["devices"][0]["kernels"][0]["fused"]["ulp"].as_f64().unwrap();
            assert!(verdict["agrees"] == true && ulp < 100.0, "{shape}: {ulp} ulp");
        }
    }
}

#[test]
fn every_kernel_is_compared_with_what_its_nodes_mean() {
    let verdict = json(&["gallery:masked_attention", "--sizes", "batch=2,heads=3,queries=7,keys=37,size=9"]);
    assert_eq!(verdict["agrees"], true, "{verdict:#}");
    let device = &verdict["devices"][0];
    assert_eq!((device["device"].as_str(), device["guilty"].is_null()), (Some("cpu"), true));
    let kernels = device["kernels"].as_array().unwrap();
    assert!(!kernels.is_empty(), "{verdict:#}");
    for kernel in kernels {
        for way in ["fused", "interpreted", "unfused"] {
            let check = &kernel[way];
            let [error, ulp] = ["error", "ulp"].map(|field| check[field].as_f64().unwrap());
            assert!(check["agrees"] == true && error >= 0.0 && (ulp > 0.0) == (error > 0.0), "{way}: {kernel:#}");
            if error > 0.0 {
                assert!(error <= check["allowed"].as_f64().unwrap(), "{kernel:#}");
                assert_eq!(check["index"].as_array().unwrap().len(), 4, "{kernel:#}");
            }
        }
    }
    for stage in ["passes", "fused", "unfused"] {
        assert_eq!(device["outputs"][stage][0]["value"], "y", "{verdict:#}");
    }
}

#[test]
fn whole_networks_agree() {
    for name in ["bert_tiny.legacy", "vit_tiny.dynamo", "decoder_tiny.legacy"] {
        let verdict = json(&[&structure(&format!("{name}.onnx"))]);
        assert_eq!(verdict["agrees"], true, "{name}: {verdict:#}");
        let device = &verdict["devices"][0];
        let kernels = device["kernels"].as_array().unwrap();
        assert!(kernels.len() > 3, "{name}: {verdict:#}");
        // What was fused can be run apart.
        assert!(kernels.iter().all(|kernel| kernel["unfused"]["error"].as_str().is_none()), "{name}: {verdict:#}");
    }
}

#[test]
fn precision_and_numerics_can_be_chosen() {
    let model = ["gallery:linear_bias_gelu", "--sizes", "m=9,k=40,n=33"];
    for more in [&["--precision", "bf16"][..], &["--numerics", "strict"], &["--numerics", "fast", "--seed", "5"]] {
        let verdict = json(&[&model[..], more].concat());
        assert_eq!(verdict["agrees"], true, "{more:?}: {verdict:#}");
    }
    let rounded = json(&[&model[..], &["--precision", "bf16"]].concat());
    let error = |stage: &str| rounded["devices"][0]["outputs"][stage][0]["error"].as_f64().unwrap();
    assert!(error("passes") < 1e-5 && error("fused") < 1e-4 && error("rounding") > 1e-3, "{rounded:#}");
}

#[test]
fn a_written_plan_is_judged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("apart.plan").display().to_string();
    let sizes = ["--sizes", "rows=5,columns=40"];
    stdout(&["explain", "gallery:layernorm_gelu", sizes[0], sizes[1], "--no-fuse", "--lock", &path]);
    let verdict = json(&["gallery:layernorm_gelu", sizes[0], sizes[1], "--plan", &path]);
    assert_eq!(verdict["agrees"], true, "{verdict:#}");
    let kernels = |verdict: &Value| verdict["devices"][0]["kernels"].as_array().unwrap().len();
    assert!(kernels(&verdict) > 4, "{verdict:#}");
    assert_eq!(kernels(&json(&["gallery:layernorm_gelu", sizes[0], sizes[1]])), 1);
    let done = fuseline(&["verify", "gallery:softmax", "--plan", &path]);
    let message = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.code() == Some(2) && message.contains("apart.plan"), "{message}");
}

#[test]
fn a_verdict_is_told_in_words() {
    let text = stdout(&["verify", "gallery:softmax", "--sizes", "rows=4,columns=33", "--device", "cpu"]);
    for word in ["Outputs, against the reference", "after passes", "unfused", "ulp", "Softmax", "the output agrees"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let help = stdout(&["verify", "--help"]);
    assert!(help.contains("Examples:") && help.contains("3  something differs"), "{help}");
}

#[test]
fn many_products_side_by_side_are_no_large_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("heads.ir");
    let weights: String = (1..=8).map(|k| format!(", w{k}: f32[128, 128]")).collect();
    let products = (1..=8).map(|k| format!("  %h{k} = contract(x, w{k}) \"ab,bc->ac\" acc=f32 : f32[48, 128]\n"));
    let maps = (1..=8).map(|k| format!("  %y{k} = map(%h{k}) max(a, 0.0) : f32[48, 128]\n"));
    let nodes: String = products.chain(maps).collect();
    let outputs: Vec<String> = (1..=8).map(|k| format!("y{k} = %y{k}")).collect();
    let graph = format!("graph heads(x: f32[48, 128]{weights}) {{\n{nodes}  return {}\n}}\n", outputs.join(", "));
    std::fs::write(&path, graph).unwrap();
    let verdict = json(&[path.to_str().unwrap()]);
    assert_eq!(verdict["agrees"], true, "{verdict}");
}

#[test]
fn a_model_that_leaves_the_range_of_f16_is_held_against_the_reading_that_applies() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("overflow.ir");
    let graph = "graph g(x: f16[2, 64], w: f16[64, 8]) {\n  %1 = contract(x, w) \"ik,kj->ij\" acc=f32 : f16[2, 8]\n  \
                 %2 = map(%1) a / 1000.0 : f16[2, 8]\n  return y = %2\n}\n";
    std::fs::write(&path, graph).unwrap();
    let path = path.to_str().unwrap();
    let inputs = ["--input", "x=300", "--input", "w=50"];
    // Held as f32 inside of a kernel, 960000 is a number; as f16 it is none.
    let held = stdout(&[&["verify", path], &inputs[..]].concat());
    assert!(held.contains("agrees with exact arithmetic; as the model is written"), "{held}");
    assert!(!held.contains("differs"), "{held}");
    let told = json(&[&[path], &inputs[..]].concat());
    let conclusion = told["devices"][0]["conclusion"].as_array().unwrap();
    let says = |words: &str| conclusion.iter().any(|line| line.as_str().unwrap().contains(words));
    assert!(says("agrees with exact arithmetic; as the model is written"), "{told:#}");
    let strict = [&inputs[..], &["--numerics", "strict"]].concat();
    let rounded = stdout(&[&["verify", path], &strict[..]].concat());
    assert!(rounded.contains("the output agrees, and so does"), "{rounded}");
    for device in ["cpu", "interp"] {
        let ran = stdout(&[&["run", path, "--device", device], &strict[..]].concat());
        assert!(ran.contains("inf"), "{device}: {ran}");
    }
    assert!(stdout(&[&["run", path], &inputs[..]].concat()).contains("960"));
}

#[test]
fn ties_of_quantised_results_are_either_neighbour() {
    for seed in ["0", "2"] {
        let told = stdout(&["verify", "gallery:moe_int8", "--dtype", "f16", "--seed", seed, "--device", "cpu"]);
        assert!(told.contains("all 2 outputs agree"), "{told}");
    }
    // What leaves the range of f16 as it is written does so with other roundings besides.
    let rounded = json(&["gallery:moe_int8", "--dtype", "f16", "--precision", "bf16"]);
    assert_eq!(rounded["agrees"], true, "{rounded:#}");
}

#[test]
fn a_plan_without_fusion_is_held_against_its_own_roundings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dequantised.ir");
    let graph = "graph dequantised(x: i8[n, 64], w: i8[64, 16]) {
  %2 = map(x) f32(a) * 0.01 : f32[n, 64]
  %3 = map(w) f32(a) * 0.001 : f32[64, 16]
  %4 = contract(%2, %3) \"ab,bc->ac\" acc=f32 : f32[n, 16]
  return y = %4
}
";
    std::fs::write(&path, graph).unwrap();
    // Fused, integers are multiplied and the scales are behind the product; apart, its factors are scaled, and rounded.
    let verdict = json(&[path.to_str().unwrap(), "--sizes", "3", "--precision", "bf16"]);
    assert_eq!(verdict["agrees"], true, "{verdict:#}");
    assert_eq!(verdict["devices"][0]["conclusion"][0], "the output agrees, and so does the kernel");
}

#[test]
fn elements_that_are_no_numbers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.npz");
    let x = Literal::from_f64s(DType::F32, [2usize, 3], &[1.0, f64::NAN, 2.0, 1.0, 2.0, 3.0]).unwrap();
    write_npz(&file, [("x", &x)], Compression::Stored).unwrap();
    let verify = ["verify", "gallery:softmax", "--inputs", file.to_str().unwrap()];
    let words = stdout(&verify);
    assert!(words.contains("3 elements are NaN in the reference too"), "{words}");
    let told: Value = serde_json::from_str(&stdout(&[&verify[..], &["--json"]].concat())).unwrap();
    assert!(told.to_string().contains("\"nan\":3"), "{told:#}");
}
