# needs: node
set -e
cat > program.js <<'EOF'
const fs = require("fs"), { execFileSync } = require("child_process");
const mark = () => execFileSync("mark");
(async () => {
    fs.writeFileSync("log", Array.from({ length: 2000 }, (_, i) => i + "\n").join(""));
    const file = await fs.promises.open("data", "w+");
    await file.write(Buffer.alloc(50000, 1), 0, 50000, 0);
    mark();
    await Promise.all([5, 9000, 30000].map((at) => file.write(Buffer.from("written over"), 0, 12, at)));
    fs.appendFileSync("log", "the end\n");
    fs.mkdirSync("a/b", { recursive: true });
    fs.copyFileSync("data", "a/b/copy");
    fs.renameSync("log", "a/log");
    mark();
    await new Promise((done) => fs.createReadStream("a/log").pipe(fs.createWriteStream("log")).on("close", done));
    await file.truncate(10000);
    fs.symlinkSync("../data", "a/link");
    fs.cpSync("a", "c", { recursive: true, verbatimSymlinks: true });
    mark();
    fs.rmSync("a", { recursive: true });
    console.log(fs.statSync("log").size, (await file.stat()).size, fs.readdirSync("c").join(" "));
    await file.close();
})();
EOF
node program.js
