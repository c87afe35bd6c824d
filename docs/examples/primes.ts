/** The module that a thread loads: it computes, and may take all the time it wants. */
// #region primes
export default ({ below }: { readonly below: number }): number => {
  let found = 0
  for (let n = 2; n < below; n++) {
    let divisor = 2
    while (divisor * divisor <= n && n % divisor !== 0) divisor++
    if (divisor * divisor > n) found++
  }
  return found
}
// #endregion
