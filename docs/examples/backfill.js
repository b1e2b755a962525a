// A scheduler for dagsim in 30 lines of JavaScript. It starts the oldest job first. If this job does not fit, it starts
// other jobs that fit and are expected to end before the oldest job could start.
const lines = require("readline").createInterface({ input: process.stdin });

function headStart(head, running, idle) {
  // Return the time at which enough GPUs for the oldest job are expected to be free, on any nodes.
  let need = head.instances * head.gpus - idle;
  const ends = [...running].sort((a, b) => a.expected_end - b.expected_end);
  for (const run of ends) {
    need -= run.gpus;
    if (need <= 0) return run.expected_end;
  }
  return Infinity;
}

function decide({ now, ready, running, free }) {
  if (ready.length === 0) return [];
  const idle = free.reduce((sum, node) => sum + (node ? node.gpus : 0), 0);
  const [head, ...others] = ready;
  const limit = headStart(head, running, idle);
  const longest = (task) => Math.max(...task.seconds.filter((s) => s !== null));
  const fill = others.filter((task) => now + longest(task) <= limit);
  return [head, ...fill].map((task) => ({ start: task.task }));
}

lines.on("line", (line) => {
  const question = JSON.parse(line);
  if (question.ask !== "decide") return; // "begin" contains what never changes: GPU types and nodes
  process.stdout.write(JSON.stringify({ decisions: decide(question) }) + "\n");
});
