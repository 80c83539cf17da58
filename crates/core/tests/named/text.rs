use fuseline::tensor::Literal;

use crate::call::op;

#[test]
fn no_text_is_longer_than_the_limit() {
    let long = |bytes: usize| Literal::texts([1], &["x".repeat(bytes)]).unwrap();
    let joined = |bytes: usize| op("StringConcat").arg(long(bytes)).arg(long(bytes));
    assert!(joined(600_000).refusal().contains("a text of 1200000 bytes (the limit is 1048576 bytes)"));
    assert_eq!(joined(1000).run()[0].sizes(), [1, 2000]);
}
