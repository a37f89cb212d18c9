# pragma version 0.4.3
# pragma evm-version paris
# pragma optimize gas
"""
@title Federated tasks
@license Apache-2.0
@notice Trainings that a manufacturer posts and pays for, that customers train and that miners judge, who are drawn by
    lot for each round. Nobody is trusted: updates are committed to before any is shown, seats need a proof, a result
    needs more than two thirds of the seats, and pay and reputation follow from the result by rules that stand here.
@dev No loop runs over people: each is settled alone. Windows are counted in blocks. What the contract owes it holds:
    the pool of a task covers the dearest course of all its rounds when it is posted.
    Amounts are below 2**96 and rounds times people below 2**24, so no sum of amounts passes 2**128.
"""


interface Token:
    def transfer(to: address, amount: uint256) -> bool: nonpayable
    def transferFrom(source: address, to: address, amount: uint256) -> bool: nonpayable
    def balanceOf(who: address) -> uint256: view


struct Proof:
    gamma: uint256[2]
    c: uint256
    s: uint256
    # What follows is determined by the rest, and told to spare inversions.
    u: uint256[2]
    s_h: uint256[2]
    c_gamma: uint256[2]
    v: uint256[2]


interface Lottery:
    def seats(
        point: uint256[2],
        alpha: bytes32,
        proof: Proof,
        roots: DynArray[uint256, 64],
        stake: uint256,
        total: uint256,
        expected: uint256,
    ) -> (bytes32, uint256, uint256): view


# Version 1 kept the first commitment of a round as zero if its value was below 256, so that its customer could commit
# again, and took windows of up to 2**28 - 1 blocks, for which a stranger's task locked the stakes of all who served it.
version: public(constant(uint256)) = 2

MOST_REPUTATION: public(constant(uint256)) = 10
MOST_PEOPLE: constant(uint256) = 256  # of a task: one bit each
SEED_DELAY: public(constant(uint256)) = 2  # blocks until the one whose hash is the seed of a new draw
HASHES: constant(uint256) = 256  # blocks whose hashes the chain still tells
LARGER: public(constant(uint256)) = 3  # times as many seats decide a dispute
VOID: constant(bytes32) = 0x0000000000000000000000000000000000000000000000000000000000000001

# Where a task is. See the windows of `Terms`.
COLLECTING: constant(uint256) = 1  # commitments, then what they bind; the seed's block ends it
WAITING: constant(uint256) = 2  # for the seed of another draw
JUDGING: constant(uint256) = 3  # seats, then the turn of each leader
DECIDED: constant(uint256) = 4  # anybody may dispute
DISPUTED: constant(uint256) = 5  # waiting for the seed of the larger committee
APPEALING: constant(uint256) = 6  # seats, then votes to overturn
DONE: constant(uint256) = 7
CANCELLED: constant(uint256) = 8

MOST_UNITS: constant(uint256) = 2**32 - 1
NUMBER: constant(uint256) = 2**64 - 1
SHORT: constant(uint256) = 2**16 - 1
BYTE: constant(uint256) = 2**8 - 1
WINDOW: constant(uint256) = 2**28 - 1  # bits of a packed window
LONGEST_WINDOW: public(constant(uint256)) = 2**20 - 1  # blocks in which updates come, or what is left is claimed
LONGEST_JUDGING_WINDOW: public(constant(uint256)) = 2**16 - 1  # blocks of each window for which a stake is locked
AMOUNT: constant(uint256) = 2**96 - 1
FEE: constant(uint256) = 2**80 - 1

struct Terms:
    rounds: uint256
    people: uint256  # customers at most
    f: uint256  # updates that may be hostile; a round needs 2 f + 3
    expected: uint256  # seats of a committee
    least: uint256  # seats without which nothing is decided
    draws: uint256  # of one round, before the task is cancelled
    commit_blocks: uint256
    reveal_blocks: uint256
    seat_blocks: uint256
    turn_blocks: uint256  # in which a leader proposes and the seats vote
    dispute_blocks: uint256
    claim_blocks: uint256  # after the end, before what is left goes back


struct Prices:
    unit: uint256  # for each point of reputation
    bonus: uint256  # on top, for the first half of those who committed
    leader_fee: uint256
    committee_fee: uint256  # for all seats together
    deposit: uint256  # of a dispute, in wei


struct Task:
    manufacturer: address
    token: address  # that pays; empty for coin
    gate: address  # whose signature admits customers; empty for everybody
    terms: uint256  # packed
    pay: uint256  # packed
    fees: uint256  # packed
    pool: uint256  # that is left
    progress: uint256  # packed
    disputer: address


struct Progress:
    status: uint256
    round: uint256
    people: uint256
    tries: uint256  # draws of this round that decided nothing
    since: uint256  # the block in which the status began, or whose hash is the seed
    draw: uint256


struct Round:
    revealed: uint256  # bits
    counts: uint256  # commitments, reveals << 16, average reputation << 32
    result: bytes32  # the proposal that was decided; VOID if there were too few updates
    winner: uint256  # draw << 8 | rank of its leader


struct Draw:
    seed: bytes32
    body: uint256  # stake of all, seats << 64, votes for the first << 96, for the second << 128, seed's block << 160
    first: uint256  # least hash of seats, 96 bits, and whose: leads
    second: uint256
    proposals: bytes32[2]


struct Proposal:
    draw: uint256
    model: bytes32  # hash of the CID
    counted: uint256  # bits of the updates that could be fetched
    accepted: uint256
    low: uint256
    paid: uint256


# What checks proofs, and wei of one unit of a miner's stake: for ever.
lottery: public(address)
stake_unit: public(uint256)

tasks: public(HashMap[bytes32, Task])
rounds: public(HashMap[bytes32, HashMap[uint256, Round]])
draws: public(HashMap[uint256, Draw])
last_draw: public(uint256)

# By task: index + 1 | round + 1 that is not settled << 16.
customers: public(HashMap[bytes32, HashMap[address, uint256]])

# By task, round and index: 247 bits of the commitment, and one more than its number among them, which is never zero.
commitments: public(HashMap[bytes32, HashMap[uint256, HashMap[uint256, uint256]]])

# By manufacturer: 256 | reputation, for whoever ever applied; and the sum of all << 64 | how many they are.
reputations: public(HashMap[address, HashMap[address, uint256]])
standings: public(HashMap[address, uint256])

# Units | since << 64 | left << 128 | locked until << 192.
miners: public(HashMap[address, uint256])

# Units of all miners after a block, units | block << 64; and the number of the last change.
totals: public(HashMap[uint256, uint256])
changes: public(uint256)

# By draw: seats | voted for the first << 32, for the second << 33 | rewarded or slashed << 34.
seats: public(HashMap[uint256, HashMap[address, uint256]])

# By draw: disputer | rank + 1 << 160; and its task.
overturned: public(HashMap[uint256, uint256])
overturned_task: public(HashMap[uint256, bytes32])

# By token (empty for coin) and person.
owed: public(HashMap[address, HashMap[address, uint256]])


event Posted:
    task: indexed(bytes32)
    manufacturer: indexed(address)
    token: address
    gate: address
    text: Bytes[64]
    model: Bytes[64]
    terms: Terms
    prices: Prices
    pool: uint256


event Applied:
    task: indexed(bytes32)
    customer: indexed(address)
    index: uint256


event Enrolled:
    miner: indexed(address)
    units: uint256


event Left:
    miner: indexed(address)
    units: uint256


event Released:
    miner: indexed(address)
    units: uint256


event Committed:
    task: indexed(bytes32)
    customer: indexed(address)
    round: uint256
    commitment: bytes32


event Revealed:
    task: indexed(bytes32)
    customer: indexed(address)
    round: uint256
    index: uint256
    cid: Bytes[64]
    key: bytes32


event Seeded:
    task: indexed(bytes32)
    draw: indexed(uint256)
    round: uint256
    fixed: uint256  # the block whose hash it is
    seed: bytes32
    stake: uint256
    expected: uint256


event Seated:
    task: indexed(bytes32)
    draw: indexed(uint256)
    miner: indexed(address)
    seats: uint256
    output: bytes32


event Proposed:
    task: indexed(bytes32)
    draw: indexed(uint256)
    leader: indexed(address)
    proposal: bytes32
    cid: Bytes[64]
    counted: uint256
    accepted: uint256
    low: uint256
    paid: uint256


event Voted:
    task: indexed(bytes32)
    draw: indexed(uint256)
    miner: indexed(address)
    proposal: bytes32
    seats: uint256


event Decided:
    task: indexed(bytes32)
    round: indexed(uint256)
    proposal: bytes32
    average: uint256


event Disputed:
    task: indexed(bytes32)
    round: indexed(uint256)
    disputer: indexed(address)


event Overturned:
    task: indexed(bytes32)
    round: indexed(uint256)
    draw: uint256


event Closed:
    task: indexed(bytes32)
    round: indexed(uint256)
    result: bytes32


event Redrawn:
    task: indexed(bytes32)
    round: indexed(uint256)
    tries: uint256
    fixed: uint256


event Cancelled:
    task: indexed(bytes32)
    round: indexed(uint256)


event Settled:
    task: indexed(bytes32)
    customer: indexed(address)
    round: uint256
    reputation: uint256
    pay: uint256


event Rewarded:
    task: indexed(bytes32)
    miner: indexed(address)
    round: uint256
    fee: uint256


event Slashed:
    draw: indexed(uint256)
    miner: indexed(address)
    units: uint256


event Reclaimed:
    task: indexed(bytes32)
    amount: uint256


event Withdrawn:
    who: indexed(address)
    token: indexed(address)
    amount: uint256


@deploy
def __init__(lottery: address, stake_unit: uint256):
    """
    @notice Miners stake whole units.
    @param lottery The contract that checks proofs.
    @param stake_unit Wei of one.
    """
    self._check(lottery.is_contract, "crowd: no lottery there")
    self._check(stake_unit > 0 and stake_unit <= AMOUNT, "crowd: stake unit out of range")
    self.lottery = lottery
    self.stake_unit = stake_unit


@external
@payable
@nonreentrant
def post(
    text: Bytes[64], model: Bytes[64], terms: Terms, prices: Prices, token: address, gate: address
) -> bytes32:
    """
    @notice Post a task, with the pool that covers the dearest course of it: every customer paid for the most
        reputation and the bonus in every round, and all fees.
    @param text CID of what is trained, in words and numbers: grid, norms, the multiple that makes a score low.
    @param model CID of the initial model.
    @param terms Rounds, people and windows.
    @param prices What is paid.
    @param token Of the pool, which the caller must have approved; empty for coin, which must come along.
    @param gate Whose signature a customer needs; empty for none.
    @return The identifier: a hash of the caller and the text.
    """
    task: bytes32 = keccak256(abi_encode(msg.sender, keccak256(text)))
    self._check(self.tasks[task].manufacturer == empty(address), "crowd: posted already")
    self._check(len(text) > 0 and len(model) > 0, "crowd: text or model is empty")
    self._check_terms(terms)
    self._check(prices.unit <= AMOUNT and prices.bonus <= AMOUNT and prices.deposit <= AMOUNT, "crowd: price out of range")
    self._check(prices.leader_fee <= FEE and prices.committee_fee <= FEE, "crowd: fee out of range")
    pool: uint256 = terms.rounds * (
        terms.people * MOST_REPUTATION * (prices.unit + prices.bonus) + prices.leader_fee + prices.committee_fee
    )
    self.tasks[task] = Task(
        manufacturer=msg.sender,
        token=token,
        gate=gate,
        terms=self._packed(terms),
        pay=prices.unit | (prices.bonus << 96),
        fees=prices.leader_fee | (prices.committee_fee << 80) | (prices.deposit << 160),
        pool=pool,
        progress=0,
        disputer=empty(address),
    )
    self._keep(
        task, Progress(status=COLLECTING, round=0, people=0, tries=0, since=block.number, draw=0)
    )
    log Posted(
        task=task,
        manufacturer=msg.sender,
        token=token,
        gate=gate,
        text=text,
        model=model,
        terms=terms,
        prices=prices,
        pool=pool,
    )
    if token == empty(address):
        self._check(msg.value == pool, "crowd: not the pool")
    else:
        self._check(msg.value == 0, "crowd: coin for a pool of tokens")
        before: uint256 = staticcall Token(token).balanceOf(self)
        self._check(extcall Token(token).transferFrom(
            msg.sender, self, pool, default_return_value=True
        ), "crowd: token refused")
        self._check(staticcall Token(token).balanceOf(self) == before + pool, "crowd: not the pool")
    return task


@external
def apply(task: bytes32, v: uint256, r: uint256, s: uint256) -> uint256:
    """
    @notice Become a customer of a task. A key that is new to the manufacturer starts with the lowest reputation.
    @param task The identifier that `post` gave.
    @param v Of the gate's signature of this contract, chain, task and customer; as are r and s.
    @param r See above; all are ignored where there is no gate.
    @param s See above.
    @return The index of the customer's bit.
    """
    progress: Progress = self._progress(task)
    self._check_active(progress)
    self._check(self.customers[task][msg.sender] == 0, "crowd: applied already")
    self._check(progress.people < (self.tasks[task].terms >> 16) & SHORT, "crowd: full")
    gate: address = self.tasks[task].gate
    if gate != empty(address):
        admission: bytes32 = keccak256(abi_encode(chain.id, self, task, msg.sender))
        self._check(ecrecover(admission, v, r, s) == gate, "crowd: not admitted")
    index: uint256 = progress.people
    self.customers[task][msg.sender] = index + 1
    progress.people = index + 1
    self._keep(task, progress)
    manufacturer: address = self.tasks[task].manufacturer
    if self.reputations[manufacturer][msg.sender] == 0:
        self.reputations[manufacturer][msg.sender] = 256
        self.standings[manufacturer] += 1
    log Applied(task=task, customer=msg.sender, index=index)
    return index


@external
@payable
def enrol():
    """
    @notice Become a miner, with a stake of whole units. It counts for draws whose seed is of a later block. To change
        it, leave, be released and enrol again.
    """
    self._check(self.miners[msg.sender] == 0, "crowd: enrolled already")
    units: uint256 = msg.value // self.stake_unit
    self._check(units > 0 and units * self.stake_unit == msg.value, "crowd: not whole units")
    self.miners[msg.sender] = units | (block.number << 64)
    self._check(self._total() + units <= MOST_UNITS, "crowd: too much stake")
    self._change(self._total() + units)
    log Enrolled(miner=msg.sender, units=units)


@external
def leave():
    """
    @notice Stop being drawn for seeds of later blocks.
    """
    miner: uint256 = self.miners[msg.sender]
    self._check(miner != 0 and (miner >> 128) & NUMBER == 0, "crowd: not a miner")
    self.miners[msg.sender] = miner | (block.number << 128)
    self._change(self._total() - (miner & NUMBER))
    log Left(miner=msg.sender, units=miner & NUMBER)


@external
def release():
    """
    @notice Get the stake back, after leaving, once no result that was voted for can be overturned any more.
    """
    miner: uint256 = self.miners[msg.sender]
    left: uint256 = (miner >> 128) & NUMBER
    self._check(left != 0, "crowd: did not leave")
    self._check(block.number > left and block.number > miner >> 192, "crowd: still locked")
    self.miners[msg.sender] = 0
    self.owed[empty(address)][msg.sender] += (miner & NUMBER) * self.stake_unit
    log Released(miner=msg.sender, units=miner & NUMBER)


@external
def commit(task: bytes32, commitment: bytes32):
    """
    @notice Bind oneself to an update before anybody's is shown.
    @param task The identifier that `post` gave.
    @param commitment keccak256 of task, round, customer, keccak256 of the CID, and the key of the encrypted file.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    self._check(progress.status == COLLECTING, "crowd: not collecting")
    self._check(block.number < progress.since + ((terms >> 88) & WINDOW), "crowd: too late")
    customer: uint256 = self.customers[task][msg.sender]
    self._check(customer != 0, "crowd: not a customer")
    self._check(customer >> 16 == 0, "crowd: settle before")
    index: uint256 = customer - 1
    self._check(self.commitments[task][progress.round][index] == 0, "crowd: committed already")
    counts: uint256 = self.rounds[task][progress.round].counts
    self.rounds[task][progress.round].counts = counts + 1
    # There are at most 256 people and each commits once, so 9 bits hold the number and one more.
    self.commitments[task][progress.round][index] = (
        (convert(commitment, uint256) >> 9) << 9
    ) | ((counts & SHORT) + 1)
    log Committed(task=task, customer=msg.sender, round=progress.round, commitment=commitment)


@external
def reveal(task: bytes32, cid: Bytes[64], key: bytes32):
    """
    @notice Show what was committed to, in its window.
    @param task The identifier that `post` gave.
    @param cid Of the encrypted update.
    @param key That opens it.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    self._check(progress.status == COLLECTING, "crowd: not collecting")
    start: uint256 = progress.since + ((terms >> 88) & WINDOW)
    self._check(block.number >= start, "crowd: too early")
    self._check(block.number < start + ((terms >> 116) & WINDOW), "crowd: too late")
    customer: uint256 = self.customers[task][msg.sender]
    self._check(customer != 0, "crowd: not a customer")
    self._check(customer >> 16 == 0, "crowd: revealed already")
    index: uint256 = customer - 1
    bound: uint256 = convert(
        keccak256(abi_encode(task, progress.round, msg.sender, keccak256(cid), key)), uint256
    )
    held: uint256 = self.commitments[task][progress.round][index]
    self._check(held != 0 and held >> 9 == bound >> 9, "crowd: not what was committed")
    self.rounds[task][progress.round].revealed |= 1 << index
    self.rounds[task][progress.round].counts += 1 << 16
    self.customers[task][msg.sender] = customer | ((progress.round + 1) << 16)
    log Revealed(task=task, customer=msg.sender, round=progress.round, index=index, cid=cid, key=key)


@external
def seed(task: bytes32, change: uint256):
    """
    @notice Start a draw with the hash of the block that was fixed for it. Anybody may; nobody chooses.
    @param task The identifier that `post` gave.
    @param change The number of the last change of stakes before that block.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    fixed: uint256 = self._seed_block(progress, terms)
    self._check(block.number > fixed, "crowd: too early")
    self._check(block.number <= fixed + HASHES, "crowd: the seed is lost")
    expected: uint256 = (terms >> 40) & BYTE
    status: uint256 = JUDGING
    if progress.status == COLLECTING:
        self._check(self._is_enough(task, progress.round, terms), "crowd: too few updates")
    elif progress.status == DISPUTED:
        expected *= LARGER
        status = APPEALING
    held: uint256 = self.totals[change]
    self._check(change <= self.changes and held >> 64 < fixed, "crowd: a later change")
    self._check(change == self.changes or self.totals[change + 1] >> 64 >= fixed, "crowd: an earlier change")
    self._check(held & NUMBER > 0, "crowd: no stake")
    draw: uint256 = self.last_draw + 1
    self.last_draw = draw
    found: bytes32 = blockhash(fixed)
    self.draws[draw].seed = found
    self.draws[draw].body = (held & NUMBER) | (fixed << 160)
    progress.status = status
    progress.since = block.number
    progress.draw = draw
    self._keep(task, progress)
    log Seeded(
        task=task,
        draw=draw,
        round=progress.round,
        fixed=fixed,
        seed=found,
        stake=held & NUMBER,
        expected=expected,
    )


@external
def seat(task: bytes32, point: uint256[2], proof: Proof, roots: DynArray[uint256, 64]) -> uint256:
    """
    @notice Take the seats that the lot gives, by a proof of the caller's own key.
    @param task The identifier that `post` gave.
    @param point The point of that key.
    @param proof See the lottery, also for the roots.
    @param roots See above.
    @return How many.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    expected: uint256 = (terms >> 40) & BYTE
    if progress.status == APPEALING:
        expected *= LARGER
    else:
        self._check(progress.status == JUDGING, "crowd: no draw")
    self._check(block.number < progress.since + ((terms >> 144) & WINDOW), "crowd: too late")
    draw: uint256 = progress.draw
    self._check(self.seats[draw][msg.sender] == 0, "crowd: seated already")
    miner: uint256 = self.miners[msg.sender]
    fixed: uint256 = self.draws[draw].body >> 160
    left: uint256 = (miner >> 128) & NUMBER
    self._check(miner != 0 and (miner >> 64) & NUMBER < fixed, "crowd: no stake then")
    self._check(left == 0 or left >= fixed, "crowd: no stake then")
    self._check(self._address(point) == msg.sender, "crowd: another's key")
    alpha: bytes32 = keccak256(
        abi_encode(chain.id, self, task, progress.round, draw, self.draws[draw].seed)
    )
    body: uint256 = self.draws[draw].body
    output: bytes32 = empty(bytes32)
    count: uint256 = 0
    mine: uint256 = 0
    output, count, mine = staticcall Lottery(self.lottery).seats(
        point, alpha, proof, roots, miner & NUMBER, body & NUMBER, expected
    )
    self._check(count > 0, "crowd: no seat")
    self.seats[draw][msg.sender] = count
    self.draws[draw].body = body + (count << 64)
    mine = ((mine >> 160) << 160) | convert(msg.sender, uint256)
    first: uint256 = self.draws[draw].first
    if first == 0:
        self.draws[draw].first = mine
        self.draws[draw].second = max_value(uint256)  # nobody yet
    else:
        if mine < first:
            self.draws[draw].first = mine
            mine = first
        if mine < self.draws[draw].second:
            self.draws[draw].second = mine
    until: uint256 = block.number + self._lock(terms)
    if until > miner >> 192:
        self.miners[msg.sender] = (miner & (2**192 - 1)) | (until << 192)
    log Seated(task=task, draw=draw, miner=msg.sender, seats=count, output=output)
    return count


@external
def propose(
    task: bytes32, cid: Bytes[64], counted: uint256, accepted: uint256, low: uint256, paid: uint256
) -> bytes32:
    """
    @notice Say what the round made, as the leader whose turn it is.
    @param task The identifier that `post` gave.
    @param cid Of the new model.
    @param counted Bits of the updates that could be fetched.
    @param accepted Of those, that Multi-Krum accepts.
    @param low Of the others, those far out or not in order.
    @param paid Of the accepted ones, those above the norm floor.
    @return The proposal's hash, which votes must name.
    """
    progress: Progress = self._progress(task)
    self._check(progress.status == JUDGING, "crowd: no draw")
    rank: uint256 = self._turn(progress, self.tasks[task].terms)
    draw: uint256 = progress.draw
    leader: uint256 = self.draws[draw].first
    if rank == 1:
        leader = self.draws[draw].second
    self._check(leader & (2**160 - 1) == convert(msg.sender, uint256), "crowd: not the leader")
    self._check(self.draws[draw].proposals[rank] == empty(bytes32), "crowd: proposed already")
    revealed: uint256 = self.rounds[task][progress.round].revealed
    self._check(counted & ~revealed == 0, "crowd: counted and not revealed")
    self._check(accepted & ~counted == 0, "crowd: accepted and not counted")
    self._check(low & ~(counted & ~accepted) == 0, "crowd: low and not rejected")
    self._check(paid & ~accepted == 0, "crowd: paid and not accepted")
    self._check(accepted != 0 and len(cid) > 0, "crowd: nothing proposed")
    proposal: bytes32 = self._proposal(
        task,
        progress.round,
        Proposal(
            draw=draw, model=keccak256(cid), counted=counted, accepted=accepted, low=low, paid=paid
        ),
    )
    self.draws[draw].proposals[rank] = proposal
    log Proposed(
        task=task,
        draw=draw,
        leader=msg.sender,
        proposal=proposal,
        cid=cid,
        counted=counted,
        accepted=accepted,
        low=low,
        paid=paid,
    )
    return proposal


@external
def vote(task: bytes32, proposal: bytes32):
    """
    @notice Agree with a proposal, once; or, where a result is disputed, that it be overturned. More than two thirds of
        the seats that were taken decide.
    @param task The identifier that `post` gave.
    @param proposal Its hash.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    draw: uint256 = progress.draw
    rank: uint256 = 0
    least: uint256 = (terms >> 48) & SHORT
    if progress.status == APPEALING:
        self._check_appeal(progress, terms)
        least *= LARGER
        self._check(self.rounds[task][progress.round].result == proposal, "crowd: not the proposal")
    else:
        self._check(progress.status == JUDGING, "crowd: no draw")
        rank = self._turn(progress, terms)
        held: bytes32 = self.draws[draw].proposals[rank]
        self._check(held != empty(bytes32) and held == proposal, "crowd: not the proposal")
    seat: uint256 = self.seats[draw][msg.sender]
    mark: uint256 = 1 << (32 + rank)
    self._check(seat != 0, "crowd: no seat")
    self._check(seat & mark == 0, "crowd: voted already")
    self.seats[draw][msg.sender] = seat | mark
    count: uint256 = seat & (2**32 - 1)
    body: uint256 = self.draws[draw].body + (count << (96 + 32 * rank))
    self.draws[draw].body = body
    log Voted(task=task, draw=draw, miner=msg.sender, proposal=proposal, seats=count)
    votes: uint256 = (body >> (96 + 32 * rank)) & (2**32 - 1)
    taken: uint256 = (body >> 64) & (2**32 - 1)
    if 3 * votes > 2 * taken and taken >= least:
        if progress.status == APPEALING:
            self._overturn(task, progress, terms)
        else:
            self._decide(task, progress, proposal, rank)


@external
@payable
def dispute(task: bytes32):
    """
    @notice Have a result judged again, by a committee three times as large, for a deposit that is lost if it stands.
    @param task The identifier that `post` gave.
    """
    progress: Progress = self._progress(task)
    self._check(progress.status == DECIDED, "crowd: nothing to dispute")
    self._check(block.number < progress.since + ((self.tasks[task].terms >> 200) & WINDOW), "crowd: too late")
    self._check(msg.value == self.tasks[task].fees >> 160, "crowd: not the deposit")
    self.tasks[task].disputer = msg.sender
    progress.status = DISPUTED
    progress.since = block.number + SEED_DELAY
    self._keep(task, progress)
    log Disputed(task=task, round=progress.round, disputer=msg.sender)


@external
def close(task: bytes32):
    """
    @notice End a round: its result stands, or it is void since too few updates came. The next round opens.
    @param task The identifier that `post` gave.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    if progress.status == COLLECTING:
        self._check(block.number > self._seed_block(progress, terms), "crowd: too early")
        self._check(not self._is_enough(task, progress.round, terms), "crowd: not over")
        self.rounds[task][progress.round].result = VOID
    else:
        self._check_stands(progress, terms)
        if progress.status != DECIDED:  # the dispute failed
            manufacturer: address = self.tasks[task].manufacturer
            self.owed[empty(address)][manufacturer] += self.tasks[task].fees >> 160
            self.tasks[task].disputer = empty(address)
        winner: uint256 = self.rounds[task][progress.round].winner
        leader: uint256 = self.draws[winner >> 8].first
        if winner & BYTE == 1:
            leader = self.draws[winner >> 8].second
        fee: uint256 = self.tasks[task].fees & FEE
        self.tasks[task].pool -= fee
        self.owed[self.tasks[task].token][convert(leader & (2**160 - 1), address)] += fee
    log Closed(task=task, round=progress.round, result=self.rounds[task][progress.round].result)
    progress.round += 1
    progress.status = COLLECTING
    if progress.round == terms & SHORT:
        progress.status = DONE
    progress.tries = 0
    progress.since = block.number
    self._keep(task, progress)


@external
def redraw(task: bytes32):
    """
    @notice Draw again where a draw decided nothing, or its seed was not taken in time; after the last, cancel the task.
    @param task The identifier that `post` gave.
    """
    progress: Progress = self._progress(task)
    terms: uint256 = self.tasks[task].terms
    if progress.status == JUDGING:
        end: uint256 = progress.since + ((terms >> 144) & WINDOW) + 2 * ((terms >> 172) & WINDOW)
        self._check(block.number >= end, "crowd: not over")
    else:
        self._check(progress.status == COLLECTING or progress.status == WAITING, "crowd: no draw")
        self._check(block.number > self._seed_block(progress, terms) + HASHES, "crowd: not over")
        if progress.status == COLLECTING:
            self._check(self._is_enough(task, progress.round, terms), "crowd: too few updates")
    self._again(task, progress, terms)


@external
def settle(task: bytes32, round: uint256, customer: address, proposal: Proposal) -> uint256:
    """
    @notice Give a customer reputation and pay for a round that is closed. Anybody may.
    @param task The identifier that `post` gave.
    @param round Its number.
    @param customer Who revealed an update in it.
    @param proposal What was decided; anything where the round is void.
    @return The pay.
    """
    terms: uint256 = self.tasks[task].terms
    held: uint256 = self.customers[task][customer]
    self._check(held >> 16 == round + 1, "crowd: nothing to settle")
    self._check(round < self._progress(task).round, "crowd: not closed")
    self.customers[task][customer] = held & SHORT
    result: bytes32 = self.rounds[task][round].result
    manufacturer: address = self.tasks[task].manufacturer
    before: uint256 = self.reputations[manufacturer][customer] & BYTE
    reputation: uint256 = before
    pay: uint256 = 0
    if result != VOID:
        self._check(self._proposal(task, round, proposal) == result, "crowd: not the result")
        bit: uint256 = 1 << ((held & SHORT) - 1)
        counts: uint256 = self.rounds[task][round].counts
        if proposal.accepted & bit != 0:
            reputation = min(before + 1, MOST_REPUTATION)
            if proposal.paid & bit != 0:
                prices: uint256 = self.tasks[task].pay
                number: uint256 = (self.commitments[task][round][(held & SHORT) - 1] & (2**9 - 1)) - 1
                pay = prices & AMOUNT
                if 2 * number < counts & SHORT:
                    pay += prices >> 96
                pay = min(pay * reputation, self.tasks[task].pool)
        elif proposal.low & bit != 0:
            reputation = self._lowered(before, counts >> 32)
    if reputation != before:
        self.reputations[manufacturer][customer] = 256 | reputation
        self.standings[manufacturer] = self.standings[manufacturer] + (reputation << 64) - (before << 64)
    if pay > 0:
        self.tasks[task].pool -= pay
        self.owed[self.tasks[task].token][customer] += pay
    log Settled(task=task, customer=customer, round=round, reputation=reputation, pay=pay)
    return pay


@external
def reward(task: bytes32, round: uint256, miner: address) -> uint256:
    """
    @notice Give a miner who voted for the result that stands the fee of its seats. Anybody may, once.
    @param task The identifier that `post` gave.
    @param round Its number.
    @param miner Who voted.
    @return The fee: the committee's, by seats among those that were taken.
    """
    self._check(round < self._progress(task).round, "crowd: not closed")
    winner: uint256 = self.rounds[task][round].winner
    draw: uint256 = winner >> 8
    self._check(draw != 0, "crowd: nothing to reward")
    seat: uint256 = self._marked(draw, miner, winner & BYTE)
    fee: uint256 = (self.tasks[task].fees >> 80) & FEE
    fee = fee * (seat & (2**32 - 1)) // ((self.draws[draw].body >> 64) & (2**32 - 1))
    fee = min(fee, self.tasks[task].pool)
    self.tasks[task].pool -= fee
    self.owed[self.tasks[task].token][miner] += fee
    log Rewarded(task=task, miner=miner, round=round, fee=fee)
    return fee


@external
def slash(draw: uint256, miner: address) -> uint256:
    """
    @notice Take the stake of a miner who voted for a result that was overturned: half to whoever disputed it, half to
        the manufacturer. Anybody may, once.
    @param draw In which it was voted for.
    @param miner Who voted.
    @return The units that are lost.
    """
    found: uint256 = self.overturned[draw]
    self._check(found != 0, "crowd: not overturned")
    self._marked(draw, miner, (found >> 160) - 1)
    held: uint256 = self.miners[miner]
    units: uint256 = held & NUMBER
    self._check(units != 0, "crowd: not a miner")
    if (held >> 128) & NUMBER == 0:
        self._change(self._total() - units)
    self.miners[miner] = 0
    half: uint256 = units * self.stake_unit // 2
    self.owed[empty(address)][convert(found & (2**160 - 1), address)] += half
    self.owed[empty(address)][self.tasks[self.overturned_task[draw]].manufacturer] += units * self.stake_unit - half
    log Slashed(draw=draw, miner=miner, units=units)
    return units


@external
def reclaim(task: bytes32) -> uint256:
    """
    @notice Give the manufacturer what is left of a pool, when all had time to be settled. Anybody may.
    @param task The identifier that `post` gave.
    @return The amount.
    """
    progress: Progress = self._progress(task)
    self._check(progress.status >= DONE, "crowd: not over")
    self._check(block.number >= progress.since + (self.tasks[task].terms >> 228), "crowd: too early")
    amount: uint256 = self.tasks[task].pool
    self._check(amount > 0, "crowd: nothing left")
    self.tasks[task].pool = 0
    self.owed[self.tasks[task].token][self.tasks[task].manufacturer] += amount
    log Reclaimed(task=task, amount=amount)
    return amount


@external
@nonreentrant
def withdraw(token: address) -> uint256:
    """
    @notice Take what one is owed.
    @param token In which; empty for coin.
    @return The amount.
    """
    amount: uint256 = self.owed[token][msg.sender]
    self._check(amount > 0, "crowd: nothing owed")
    self.owed[token][msg.sender] = 0
    log Withdrawn(who=msg.sender, token=token, amount=amount)
    if token == empty(address):
        raw_call(msg.sender, b"", value=amount)
    else:
        self._check(extcall Token(token).transfer(msg.sender, amount, default_return_value=True), "crowd: token refused")
    return amount


@external
@view
def progress(task: bytes32) -> Progress:
    """
    @notice Where a task is.
    @param task The identifier that `post` gave.
    @return See the structure.
    """
    return self._progress(task)


@internal
@pure
def _check_terms(terms: Terms):
    """
    @dev Refuse what cannot be packed or played.
    """
    self._check(terms.rounds > 0 and terms.rounds <= SHORT, "crowd: rounds out of range")
    self._check(terms.people <= MOST_PEOPLE and terms.f <= BYTE, "crowd: people out of range")
    self._check(terms.people >= 2 * terms.f + 3, "crowd: too few people")
    self._check(terms.expected > 0 and terms.expected <= BYTE, "crowd: seats out of range")
    self._check(terms.least > 0 and terms.least <= terms.expected, "crowd: seats out of range")
    self._check(terms.draws > 0 and terms.draws <= BYTE, "crowd: draws out of range")
    for window: uint256 in [terms.commit_blocks, terms.reveal_blocks, terms.claim_blocks]:
        self._check(window > 0 and window <= LONGEST_WINDOW, "crowd: window out of range")
    for window: uint256 in [terms.seat_blocks, terms.turn_blocks, terms.dispute_blocks]:
        self._check(window > 0 and window <= LONGEST_JUDGING_WINDOW, "crowd: window out of range")


@internal
@pure
def _packed(terms: Terms) -> uint256:
    """
    @dev Terms in one word: 16 bits of rounds, 16 of people, 8 of f, 8 of seats, 16 of the least, 8 of draws, windows.
    """
    return (
        terms.rounds
        | (terms.people << 16)
        | (terms.f << 32)
        | (terms.expected << 40)
        | (terms.least << 48)
        | (terms.draws << 64)
        | (terms.commit_blocks << 88)
        | (terms.reveal_blocks << 116)
        | (terms.seat_blocks << 144)
        | (terms.turn_blocks << 172)
        | (terms.dispute_blocks << 200)
        | (terms.claim_blocks << 228)
    )


@internal
@view
def _progress(task: bytes32) -> Progress:
    """
    @dev Where a task is; refused if there is none.
    """
    word: uint256 = self.tasks[task].progress
    self._check(word != 0, "crowd: no such task")
    return Progress(
        status=word & BYTE,
        round=(word >> 8) & SHORT,
        people=(word >> 24) & SHORT,
        tries=(word >> 40) & SHORT,
        since=(word >> 56) & NUMBER,
        draw=word >> 120,
    )


@internal
def _keep(task: bytes32, progress: Progress):
    """
    @dev Write down where a task is.
    """
    self.tasks[task].progress = (
        progress.status
        | (progress.round << 8)
        | (progress.people << 24)
        | (progress.tries << 40)
        | (progress.since << 56)
        | (progress.draw << 120)
    )


@internal
@pure
def _check_active(progress: Progress):
    """
    @dev Refuse a task that is over.
    """
    self._check(progress.status < DONE, "crowd: the task is over")


@internal
@pure
def _seed_block(progress: Progress, terms: uint256) -> uint256:
    """
    @dev The block whose hash is the seed, fixed before it is known; refused where none is awaited.
    """
    if progress.status == COLLECTING:
        return progress.since + ((terms >> 88) & WINDOW) + ((terms >> 116) & WINDOW)
    self._check(progress.status == WAITING or progress.status == DISPUTED, "crowd: no draw")
    return progress.since


@internal
@view
def _is_enough(task: bytes32, round: uint256, terms: uint256) -> bool:
    """
    @dev Whether a round has the 2 f + 3 updates that Multi-Krum needs.
    """
    return (self.rounds[task][round].counts >> 16) & SHORT >= 2 * ((terms >> 32) & BYTE) + 3


@internal
@view
def _turn(progress: Progress, terms: uint256) -> uint256:
    """
    @dev Whose turn it is, by rank; refused before and after.
    """
    start: uint256 = progress.since + ((terms >> 144) & WINDOW)
    turn: uint256 = (terms >> 172) & WINDOW
    self._check(block.number >= start, "crowd: too early")
    self._check(block.number < start + 2 * turn, "crowd: too late")
    if block.number < start + turn:
        return 0
    return 1


@internal
@view
def _check_appeal(progress: Progress, terms: uint256):
    """
    @dev Refuse votes to overturn out of their window.
    """
    start: uint256 = progress.since + ((terms >> 144) & WINDOW)
    self._check(block.number >= start, "crowd: too early")
    self._check(block.number < start + ((terms >> 172) & WINDOW), "crowd: too late")


@internal
@view
def _check_stands(progress: Progress, terms: uint256):
    """
    @dev Refuse to close a round whose result may still fall.
    """
    if progress.status == DECIDED:
        self._check(block.number >= progress.since + ((terms >> 200) & WINDOW), "crowd: not over")
    elif progress.status == DISPUTED:
        self._check(block.number > progress.since + HASHES, "crowd: not over")
    else:
        self._check(progress.status == APPEALING, "crowd: not decided")
        end: uint256 = progress.since + ((terms >> 144) & WINDOW) + ((terms >> 172) & WINDOW)
        self._check(block.number >= end, "crowd: not over")


@internal
@pure
def _lock(terms: uint256) -> uint256:
    """
    @dev Blocks after which nothing that a seat votes for can be overturned and slashed any more.
    """
    seat: uint256 = (terms >> 144) & WINDOW
    turn: uint256 = (terms >> 172) & WINDOW
    dispute: uint256 = (terms >> 200) & WINDOW
    return 2 * seat + 3 * turn + 2 * dispute + SEED_DELAY + HASHES


@internal
def _decide(task: bytes32, progress: Progress, proposal: bytes32, rank: uint256):
    """
    @dev A proposal has its votes: from now on it may be disputed.
    """
    standing: uint256 = self.standings[self.tasks[task].manufacturer]
    average: uint256 = (standing >> 64) // (standing & NUMBER)
    counts: uint256 = self.rounds[task][progress.round].counts
    self.rounds[task][progress.round].counts = (counts & (2**32 - 1)) | (average << 32)
    self.rounds[task][progress.round].result = proposal
    self.rounds[task][progress.round].winner = (progress.draw << 8) | rank
    after: Progress = progress
    after.status = DECIDED
    after.since = block.number
    self._keep(task, after)
    log Decided(task=task, round=progress.round, proposal=proposal, average=average)


@internal
def _overturn(task: bytes32, progress: Progress, terms: uint256):
    """
    @dev A result falls: whoever disputed gets the deposit back, and the round is drawn again.
    """
    winner: uint256 = self.rounds[task][progress.round].winner
    disputer: address = self.tasks[task].disputer
    self.overturned[winner >> 8] = convert(disputer, uint256) | (((winner & BYTE) + 1) << 160)
    self.overturned_task[winner >> 8] = task
    self.rounds[task][progress.round].result = empty(bytes32)
    self.rounds[task][progress.round].winner = 0
    self.tasks[task].disputer = empty(address)
    self.owed[empty(address)][disputer] += self.tasks[task].fees >> 160
    log Overturned(task=task, round=progress.round, draw=winner >> 8)
    self._again(task, progress, terms)


@internal
def _again(task: bytes32, progress: Progress, terms: uint256):
    """
    @dev Fix the block of the next seed, or cancel the task after the last draw.
    """
    after: Progress = progress
    after.tries += 1
    after.status = WAITING
    after.since = block.number + SEED_DELAY
    if after.tries >= (terms >> 64) & BYTE:
        after.status = CANCELLED
        after.since = block.number
        log Cancelled(task=task, round=progress.round)
    else:
        log Redrawn(task=task, round=progress.round, tries=after.tries, fixed=after.since)
    self._keep(task, after)


@internal
def _marked(draw: uint256, miner: address, rank: uint256) -> uint256:
    """
    @dev The seat of a miner who voted for a leader's proposal, which is rewarded or slashed once.
    """
    seat: uint256 = self.seats[draw][miner]
    self._check(seat & (1 << (32 + rank)) != 0, "crowd: did not vote for it")
    self._check(seat & 2**34 == 0, "crowd: done already")
    self.seats[draw][miner] = seat | 2**34
    return seat


@internal
@pure
def _lowered(reputation: uint256, average: uint256) -> uint256:
    """
    @dev After a low evaluation: one less above the average, nothing at it, the same below.
    """
    if reputation > average:
        return reputation - 1
    if reputation == average:
        return 0
    return reputation


@internal
@view
def _total() -> uint256:
    """
    @dev Units of all miners now.
    """
    return self.totals[self.changes] & NUMBER


@internal
def _change(units: uint256):
    """
    @dev Write down the units of all miners after this block.
    """
    number: uint256 = self.changes
    if self.totals[number] >> 64 != block.number:
        number += 1
        self.changes = number
    self.totals[number] = units | (block.number << 64)


@internal
@pure
def _proposal(task: bytes32, round: uint256, proposal: Proposal) -> bytes32:
    """
    @dev The hash of a proposal.
    """
    return keccak256(abi_encode(task, round, proposal))


@internal
@pure
def _address(point: uint256[2]) -> address:
    """
    @dev The address of a key, or of any point: what `ecrecover` tells of one.
    """
    return convert(
        convert(keccak256(abi_encode(point[0], point[1])), uint256) & (2**160 - 1), address
    )


@internal
@pure
def _check(holds: bool, reason: String[40]):
    """
    @dev Refuse with a reason. One place, since each `assert` with its own would take 130 bytes of code.
    """
    assert holds, reason
