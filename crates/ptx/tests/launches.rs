//! Small functions, launched: what they leave in memory, and what is told of those that are wrong.

use fuseline_ptx::{Launch, Memory, Module, Order};

/// A function of two tensors with this code and these declarations.
fn text(directives: &str, code: &str) -> String {
    format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 16 .b8 more[];\n\
         .visible .entry f(\n.param .u64 f_param_0,\n.param .u64 f_param_1\n)\n{directives}\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .f32 %f<8>;\n.reg .b64 %rd<16>;\n.shared .align 8 .b8 own[256];\n\
         ld.param.u64 %rd1, [f_param_0];\nld.param.u64 %rd2, [f_param_1];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\n\
         add.s64 %rd4, %rd1, %rd3;\nadd.s64 %rd5, %rd2, %rd3;\n{code}\nret;\n}}\n"
    )
}

/// What threads write, each one number, who read numbers from 0 on.
fn launched(directives: &str, code: &str, blocks: u32, threads: u32, order: Order) -> Result<Vec<u32>, String> {
    let module = Module::parse(&text(directives, code))?;
    let function = module.function("f").ok_or("no function")?;
    let mut memory = Memory::default();
    let numbers: Vec<u8> = (0..threads).flat_map(u32::to_le_bytes).collect();
    let (given, found) = (memory.hold(&numbers), memory.reserve(numbers.len()));
    let arguments = [memory.address(given), memory.address(found)];
    Launch { function, blocks, threads, shared: 64, order }.run(&mut memory, &arguments)?;
    let words = memory.bytes(found).chunks_exact(4);
    Ok(words.map(|word| u32::from_le_bytes(word.try_into().expect("four bytes"))).collect())
}

fn run(code: &str) -> Result<Vec<u32>, String> {
    launched("", code, 1, 64, Order::Forward)
}

fn wrong(code: &str, why: &str) {
    let told = run(code).expect_err(code);
    assert!(told.contains(why), "{told}");
}

#[test]
fn lanes_exchange_what_they_have() {
    let code = "ld.global.u32 %r2, [%rd4];\nshfl.sync.bfly.b32 %r3|%p1, %r2, 5, 31, -1;\nst.global.u32 [%rd5], %r3;";
    let found = run(code).unwrap();
    assert!((0..64).all(|k| found[k as usize] == k ^ 5), "{found:?}");
}

#[test]
fn a_missing_meeting_shows_in_the_order_of_threads() {
    let code = |meets: &str| {
        format!(
            "mov.u32 %r2, own;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r1;\n{meets}\n\
             xor.b32 %r5, %r3, 252;\nadd.s32 %r6, %r2, %r5;\nld.shared.u32 %r7, [%r6];\nst.global.u32 [%rd5], %r7;"
        )
    };
    for order in [Order::Forward, Order::Backward] {
        let found = launched("", &code("bar.sync 0;"), 1, 64, order).unwrap();
        assert!((0..64).all(|k| found[k as usize] == 63 - k), "{found:?}");
    }
    let [one, other] = [Order::Forward, Order::Backward].map(|order| launched("", &code(""), 1, 64, order).unwrap());
    assert_ne!(one, other);
}

#[test]
fn copies_that_nobody_waits_for_have_not_happened() {
    let code = |waits: &str| {
        format!(
            "mov.u32 %r2, more;\nshl.b32 %r3, %r1, 2;\nadd.s32 %r4, %r2, %r3;\nsetp.gt.u32 %p1, %r1, 15;\n@%p1 bra END;\n\
             cp.async.ca.shared.global [%r4], [%rd4], 4;\ncp.async.commit_group;\n{waits}\n\
             ld.shared.u32 %r7, [%r4];\nst.global.u32 [%rd5], %r7;\nEND:"
        )
    };
    let found = run(&code("cp.async.wait_group 0;")).unwrap();
    assert!((0..16).all(|k| found[k as usize] == k), "{found:?}");
    assert!(run(&code("cp.async.wait_group 1;")).unwrap()[..16].iter().all(|word| *word == u32::MAX));
}

#[test]
fn bytes_arrive_where_they_are_awaited() {
    let code = "mov.u32 %r2, own;\nmov.u32 %r3, more;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra NEXT;\n\
        mbarrier.init.shared.b64 [%r2], 1;\nmbarrier.arrive.expect_tx.shared.b64 _, [%r2], 64;\n\
        cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 64, [%r2];\nNEXT:\nbar.sync 0;\nWAIT:\n\
        { .reg .pred there; mbarrier.try_wait.parity.shared.b64 there, [%r2], 0; selp.s32 %r4, 1, 0, there; }\n\
        setp.eq.s32 %p2, %r4, 0;\n@%p2 bra WAIT;\nand.b32 %r5, %r1, 15;\nshl.b32 %r5, %r5, 2;\nadd.s32 %r5, %r3, %r5;\n\
        ld.shared.u32 %r6, [%r5];\nst.global.u32 [%rd5], %r6;";
    let found = run(code).unwrap();
    assert!((0..64).all(|k| found[k as usize] == k % 16), "{found:?}");
    wrong(&code.replace("_, [%r2], 64", "_, [%r2], 80"), "threads wait for each other for ever");
}

#[test]
fn blocks_of_a_cluster_see_what_others_share() {
    let code = "mov.u32 %r2, %cluster_ctarank;\nmov.u32 %r3, own;\nst.shared.u32 [%r3], %r2;\nbarrier.cluster.arrive.release;\n\
        barrier.cluster.wait.acquire;\nxor.b32 %r4, %r2, 1;\nmapa.shared::cluster.u32 %r5, %r3, %r4;\n\
        ld.shared::cluster.u32 %r6, [%r5];\nmov.u32 %r7, %ctaid.x;\nmul.wide.u32 %rd6, %r7, 4;\nadd.s64 %rd7, %rd2, %rd6;\nst.global.u32 [%rd7], %r6;";
    let found = launched(".reqnctapercluster 2, 1, 1", code, 4, 32, Order::Forward).unwrap();
    assert_eq!(found[..4], [1, 0, 1, 0]);
}

#[test]
fn wrong_accesses_are_told_with_their_thread() {
    wrong("ld.global.u32 %r2, [%rd4+4];", "line 21: thread 63 of block 0: 4 bytes at byte 256 of tensor 0");
    wrong("st.global.u32 [%rd5+4], %r1;", "tensor 1");
    wrong("ld.global.v2.u32 {%r2, %r3}, [%rd4];", "which is no multiple");
    wrong("mov.u64 %rd6, 64;\nld.global.u32 %r2, [%rd6];", "no tensor lies at 0x40");
    wrong("mov.u32 %r2, more;\nld.shared.u32 %r3, [%r2+64];", "of shared memory");
    wrong(
        "setp.eq.s32 %p1, %r1, 3;\n@%p1 bar.sync 0, 64;",
        "threads wait for each other for ever: thread 3 of block 0",
    );
}

#[test]
fn what_is_not_known_is_an_error() {
    wrong("wgmma.fence.sync.aligned;", "line 21: wgmma.fence.sync.aligned is not known here");
    wrong("mov.u32 %r2, %nobody;", "Label(\"%nobody\")");
    wrong("bra NOWHERE;", "no label NOWHERE");
}
